//! The serving port: accepts TCP connections, terminates TLS, serves HTTP/1.1 and HTTP/2, and stamps the client's
//! certificate on each request.
//!
//! Start reading at [`bind`](crate::serving::listener::bind), [`TlsConfig`] and [`Server`]. Every request goes to the
//! one [`Handler`](crate::request::Handler) that the server was given; this module never inspects its content. Client
//! certificates are requested but not verified here: that is the authenticator's task, as it is upstream
//! (`k8s.io/apiserver/pkg/server/secure_serving.go`).
//!
//! The deadlines of a connection, with their defaults ([`Limits`]):
//!
//! ```text
//! accept ──10 s──▶ TLS done ──32 s──▶ first head ──▶ request … response ──90 s idle──▶ graceful close ──5 s──▶ cut
//!                              (h1: 32 s from the first byte of any later head)
//! at any time: the peer has read none of our bytes for 10 min ──▶ cut
//! ```
//!
//! The connection limit, and the choice of the connection to evict when it is reached, are in `slots`.

mod bulk;
mod connection;
mod fair_semaphore;
pub mod limits;
pub mod listener;
mod registry;
pub mod server;
mod slots;
pub mod tls;

pub use limits::Limits;
pub use listener::{BindError, Listener};
pub use server::{Drained, Server, ServerHandle};
pub use tls::{SniKeyPair, TlsConfig, TlsOptions, TlsVersion};

#[cfg(test)]
mod tests;
