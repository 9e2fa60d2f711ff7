//! Talking to an API server as a client: kubeconfig, and a small REST client for programs built on this library.

pub mod kubeconfig;
pub mod rest;

pub use kubeconfig::{ClientConfig, KubeconfigError};
pub use rest::{Client, ClientError, Events};
