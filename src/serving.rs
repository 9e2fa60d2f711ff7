//! The serving port: accepts TCP connections, terminates TLS, serves HTTP/1.1 and HTTP/2, and stamps the
//! client's certificate on each request.
//!
//! Start reading at [`bind`](crate::serving::listener::bind), [`TlsConfig`] and [`Server`]. Every request
//! goes to the one [`Handler`](crate::request::Handler) that the server was given; this module never inspects
//! its content. Client certificates are requested but not verified here: that is the authenticator's task, as
//! it is upstream (`k8s.io/apiserver/pkg/server/secure_serving.go`).
//!
//! The deadlines of a connection, with their defaults ([`Limits`]):
//!
//! ```text
//! accept ─10 s─▶ TLS done ─32 s─▶ first head ──▶ request … response ─90 s idle─▶ graceful close ─5 s─▶ cut
//!                              (h1: 32 s from the first byte of any later head)
//! at any time: the peer has read none of our bytes for 10 min ──▶ cut
//! ```
//!
//! The connection limit, and the choice of the connection to evict when it is reached, are in `slots`.

mod activity;
mod bulk;
mod connection;
mod fair_semaphore;
pub(crate) mod limits;
pub(crate) mod listener;
mod registry;
pub(crate) mod server;
mod slots;
pub(crate) mod tls;

pub(crate) use limits::Limits;
pub(crate) use listener::Listener;
pub(crate) use server::{Drained, Server, ServerHandle};
pub(crate) use tls::{SniKeyPair, TlsConfig, TlsOptions, TlsVersion};

#[cfg(test)]
mod tests;
