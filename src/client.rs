//! Reading API objects from inside this library's programs: informers over a storage of the same process, and a small REST
//! client with kubeconfig for a server elsewhere.

pub mod fetch;
pub mod informer;
pub mod kubeconfig;
pub mod rest;

pub use fetch::{FetchError, Fetcher};
pub use informer::{Change, Informer, InformerHandle};
pub use kubeconfig::{ClientConfig, KubeconfigError};
pub use rest::{Client, ClientError, Events};
