//! What all proxies of the gateway share: the aggregator's, and those of pods, services and nodes.
//!
//! - [`outbound`], [`dial`] and [`tls`] make connections; [`target`] reads where an object sends requests.
//! - [`headers`], [`url`], [`links`] and [`html`] rewrite what passes through; [`policy`] restricts what a response can do
//!   in a browser, and [`hops`] detects loops.
//! - [`tunnel`] copies upgraded connections; [`backend`] sends one request on a connection of its own; [`spdy`] makes and
//!   reads frames of connections that end here.
//!
//! Error texts are Go's wherever clients or object conditions show them. The connection pool of aggregated APIs is in
//! [`crate::aggregator::proxy::transport`].

pub mod backend;
mod certificate_warnings;
pub mod dial;
pub mod headers;
pub mod hops;
pub mod html;
pub mod io;
pub mod links;
pub mod outbound;
pub mod policy;
pub mod resolver;
pub mod spdy;
pub mod target;
pub mod tls;
pub mod tunnel;
pub mod url;
pub(crate) mod verify;
