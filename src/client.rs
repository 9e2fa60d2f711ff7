//! Client side of HTTP: API clients for programs built on this library, and the parts that all of its proxies share.
//!
//! - API clients: [`Informer`] follows a storage in the same process, [`Client`] is a small REST client for a remote
//!   server configured by a kubeconfig ([`ClientConfig`]), [`Fetcher`] sends single requests to configured URLs.
//! - Proxying: [`outbound`], [`dial`] and [`tls`] make connections, [`headers`], [`url`], [`links`] and [`html`] rewrite
//!   what passes through, [`hops`] detects loops, [`tunnel`] copies upgraded connections, [`backend`] sends one request
//!   on a connection of its own.
//!
//! Error texts are Go's wherever clients or object conditions show them. The connection pool of aggregated APIs is in
//! [`crate::aggregator::proxy::transport`].

pub mod backend;
mod certificate_warnings;
pub mod dial;
pub mod fetch;
pub mod headers;
pub mod hops;
pub mod html;
mod http;
pub mod informer;
pub mod io;
pub mod kubeconfig;
pub mod links;
pub mod outbound;
pub mod policy;
pub mod probe;
pub mod resolver;
pub mod rest;
pub mod retry;
pub mod target;
pub mod tls;
pub mod tunnel;
pub mod url;
mod verify;
pub mod webhook;

pub use fetch::{FetchError, Fetcher};
pub use informer::{Change, Informer, InformerHandle};
pub use kubeconfig::{ClientConfig, KubeconfigError};
pub use rest::{Client, ClientError, Events};
