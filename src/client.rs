//! Clients of API servers: [`Informer`] follows a storage in the same process, [`Client`] is a small REST
//! client for a remote server configured by a kubeconfig ([`ClientConfig`]), [`Fetcher`] sends single
//! requests to configured URLs.
//!
//! [`webhook`] calls webhooks, and validates how they are called.
//!
//! Error texts are Go's wherever clients or object conditions show them. Forwarding of clients' requests is
//! left to [`crate::proxy`].

mod bearer;
pub(crate) mod fetch;
mod http;
pub(crate) mod informer;
pub(crate) mod kubeconfig;
pub(crate) mod probe;
pub(crate) mod rest;
pub(crate) mod retry;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod webhook;

pub(crate) use fetch::{FetchError, Fetcher};
pub(crate) use informer::{CATCH_UP_TIMEOUT, Change, Informer, InformerHandle};
pub use kubeconfig::{ClientConfig, KubeconfigError};
pub use rest::{Client, ClientError, Events};
