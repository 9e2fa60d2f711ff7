//! Metrics of the serving port: failed handshakes, refused connections, stalls.

use super::compute::ComputeMetrics;
use super::counter;
use prometheus::{IntCounter, Registry};
use std::time::Duration;

/// Handles of the families.
#[derive(Clone)]
pub struct PortMetrics {
    /// `apiserver_tls_handshake_errors_total`.
    handshake_errors: IntCounter,
    /// `torana_connections_refused_total`.
    refused: IntCounter,
    // Stalls of connections and of requests are one family, which belongs to the pool.
    compute: ComputeMetrics,
}

impl PortMetrics {
    pub(super) fn new(r: &Registry, compute: ComputeMetrics) -> Self {
        Self {
            handshake_errors: counter(
                r,
                "apiserver_tls_handshake_errors_total",
                "Connections that failed in the TLS handshake.",
            ),
            refused: counter(
                r,
                "torana_connections_refused_total",
                "Connections that were closed at once because a connection limit was reached.",
            ),
            compute,
        }
    }

    /// Records a failed TLS handshake.
    pub fn handshake_failed(&self) {
        self.handshake_errors.inc();
    }

    /// Number of failed TLS handshakes.
    pub fn handshake_errors(&self) -> u64 {
        self.handshake_errors.get()
    }

    /// Records a connection closed because of a connection limit.
    pub fn connection_refused(&self) {
        self.refused.inc();
    }

    /// Number of connections closed because of a connection limit.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Records that a connection's task occupied its reactor thread for this long.
    pub fn stalled(&self, took: Duration) {
        self.compute.stalled("connection", took.as_secs_f64());
    }
}
