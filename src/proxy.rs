//! Code shared by all proxies of the gateway: the aggregator's, and those of pods, services and nodes.
//!
//! - [`outbound`], [`dial`] and [`tls`] make connections; [`lookups`] limits name lookups; [`target`] reads where an
//!   object sends requests.
//! - [`headers`], [`interim`], [`url`], [`links`] and [`html`] rewrite what passes through; [`policy`] restricts what a
//!   response can do in a browser, and [`hops`] detects loops.
//! - [`transport`] pools connections to the addresses of one backend, balances requests over them and leaves
//!   dead ones alone; it serves aggregated APIs and webhooks.
//! - [`tunnel`] copies upgraded connections; [`backend`] sends one request on a connection of its own, of
//!   which [`places`] limits the number; [`spdy`] makes and reads frames of connections that end here.
//!
//! Error texts are Go's wherever clients or object conditions show them.

pub(crate) mod backend;
pub(crate) mod ca_bundle;
mod certificate_warnings;
pub(crate) mod dial;
pub(crate) mod headers;
pub(crate) mod hops;
pub(crate) mod html;
pub(crate) mod interim;
pub(crate) mod io;
pub(crate) mod links;
pub(crate) mod lookups;
pub(crate) mod outbound;
pub(crate) mod places;
pub(crate) mod policy;
pub(crate) mod resolver;
pub(crate) mod spdy;
pub(crate) mod target;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod tunnel;
pub(crate) mod url;
pub(crate) mod verify;
