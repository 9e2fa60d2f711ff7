//! Accepting connections: one TLS port, HTTP/1.1 and HTTP/2, every client's certificate stamped on its requests.
//!
//! Entry points: [`bind`](crate::serving::listener::bind), [`TlsConfig`],
//! [`Server`]. A request leaves this room through the
//! one [`Handler`](crate::request::Handler) the server was given; nothing here looks at what it asks for. Client
//! certificates are asked for and stamped, never judged: verifying them is the authenticator's work, as upstream does
//! it (`k8s.io/apiserver/pkg/server/secure_serving.go`).
//!
//! What a client may hold, and for how long ([`Limits`]):
//!
//! ```text
//! accept ──10 s──▶ TLS done ──32 s──▶ first head ──▶ request … answer ──90 s without a request──▶ graceful close ──5 s──▶ cut
//!                              (h1: 32 s from the first byte of any later head)
//! any time: nothing of ours read by the peer for 10 min ──▶ cut
//! ```
//!
//! How many there may be, and which one is closed for a new one: `slots`.

mod bulk;
pub mod certs;
mod connection;
mod gate;
pub mod limits;
pub mod listener;
mod registry;
pub mod server;
mod slots;
pub mod tls;

pub use crate::request::peer;
pub use certs::{CaPool, CertError, DynamicCa, DynamicKeyPair, KeyPairData, Reload, watch_files};
pub use limits::Limits;
pub use listener::{BindError, Listener};
pub use peer::{ConnectionCache, PeerCertificates, RemoteAddr};
pub use server::{Drained, Server, ServerHandle};
pub use tls::{SniKeyPair, TlsConfig, TlsOptions, TlsVersion};

#[cfg(test)]
mod tests;
