//! From a request of a client to a request of a backend, and the answer back.
//!
//! [`ProxyHandler`] decides and rewrites; [`transport`] holds connections; [`upgrade`] tunnels; [`tls`] trusts.
//! Nothing is buffered whole, nothing is parsed twice, and a client that leaves cancels its request at the backend.

pub mod answers;
pub mod dial;
mod gunzip;
pub mod handler;
pub mod headers;
pub mod tls;
pub mod transport;
pub mod upgrade;
pub mod url;

#[cfg(test)]
mod tests;

pub use handler::{ProxyHandler, ProxyShared, Remote, Settings, Terminations};
