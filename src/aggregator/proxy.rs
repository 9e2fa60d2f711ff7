//! From a request of a client to a request of a backend, and the answer back.
//!
//! [`ProxyHandler`] decides and rewrites; [`transport`] holds connections; [`upgrade`] tunnels; [`crate::client::tls`] trusts.
//! Nothing is buffered whole, nothing is parsed twice, and a client that leaves cancels its request at the backend.

pub mod answers;
mod gunzip;
pub mod handler;
mod identities;
pub mod transport;
pub mod upgrade;

pub use crate::client::{dial, headers, tls, url};
#[cfg(test)]
mod tests;

pub use handler::{ProxyHandler, ProxyShared, Remote, Settings, Terminations};
pub use identities::Identities;
