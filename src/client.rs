//! Reading API objects from inside this library's programs: informers over a storage of the same process, and a small REST
//! client with kubeconfig for a server elsewhere. And what all who pass requests on to others share: connections and their
//! TLS with errors in Go's words, headers and URLs as Go's proxies rewrite them, tunnels.

pub mod backend;
pub mod dial;
pub mod fetch;
mod flaws;
pub mod headers;
pub mod hops;
pub mod html;
pub mod informer;
pub mod io;
pub mod kubeconfig;
pub mod links;
pub mod names;
pub mod outbound;
pub mod policy;
pub mod probe;
pub mod rest;
pub mod target;
pub mod tls;
pub mod tunnel;
pub mod url;
mod verify;

pub use fetch::{FetchError, Fetcher};
pub use informer::{Change, Informer, InformerHandle};
pub use kubeconfig::{ClientConfig, KubeconfigError};
pub use rest::{Client, ClientError, Events};
