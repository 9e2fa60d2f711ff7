//! The reverse proxy of the aggregator: forwards client requests to backends and streams the responses back.
//!
//! Entry point: [`ProxyHandler`], which decides about and rewrites each request. [`crate::proxy::transport`]
//! owns connections, [`upgrade`] tunnels upgraded ones, [`crate::proxy::tls`] verifies peers. Bodies are streamed, never buffered whole,
//! and a client that disconnects cancels its request at the backend.

mod gunzip;
pub(crate) mod handler;
mod identities;
pub(crate) mod responses;
pub(crate) mod upgrade;

#[cfg(test)]
mod tests;

pub(crate) use handler::{ProxyHandler, ProxyShared, Remote, Settings, TerminationMetrics};
