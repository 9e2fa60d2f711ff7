//! Clients of API servers: [`Informer`] follows a storage in the same process, [`Client`] is a small REST client for a
//! remote server configured by a kubeconfig ([`ClientConfig`]), [`Fetcher`] sends single requests to configured URLs.
//!
//! [`webhook`] calls webhooks, and validates how they are called.
//!
//! Error texts are Go's wherever clients or object conditions show them. What forwards requests of others is in
//! [`crate::proxy`].

pub mod fetch;
mod http;
pub mod informer;
pub mod kubeconfig;
pub mod probe;
pub mod rest;
pub mod retry;
pub mod webhook;

pub use fetch::{FetchError, Fetcher};
pub use informer::{Change, Informer, InformerHandle};
pub use kubeconfig::{ClientConfig, KubeconfigError};
pub use rest::{Client, ClientError, Events};
