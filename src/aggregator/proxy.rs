//! The reverse proxy of the aggregator: forwards client requests to backends and streams the responses back.
//!
//! Entry point: [`ProxyHandler`]. `prepare` decides about each request and rewrites it, `exchange` sends it
//! and handles the response. [`crate::proxy::transport`] owns connections, [`upgrade`] tunnels upgraded ones,
//! [`crate::proxy::tls`] verifies peers. Bodies are streamed, never buffered whole, and a client that
//! disconnects cancels its request at the backend.

mod exchange;
mod gunzip;
pub(crate) mod handler;
mod identities;
mod prepare;
pub(crate) mod responses;
pub(crate) mod upgrade;

#[cfg(test)]
mod tests;

pub(crate) use handler::{ProxyHandler, ProxyShared, Remote, Settings, TerminationMetrics};
