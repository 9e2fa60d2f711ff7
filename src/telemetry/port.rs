//! The serving port.

use super::compute::ComputeMetrics;
use super::counter;
use prometheus::{IntCounter, Registry};
use std::time::Duration;

/// The families.
#[derive(Clone)]
pub struct PortMetrics {
    /// `apiserver_tls_handshake_errors_total`.
    handshake_errors: IntCounter,
    /// `torana_connections_refused_total`.
    refused: IntCounter,
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
                "Connections that were closed at once because a bound on connections was reached.",
            ),
            compute,
        }
    }

    /// A TLS handshake failed.
    pub fn handshake_failed(&self) {
        self.handshake_errors.inc();
    }

    /// How many TLS handshakes failed.
    pub fn handshake_errors(&self) -> u64 {
        self.handshake_errors.get()
    }

    /// A connection was closed because of a bound on connections.
    pub fn connection_refused(&self) {
        self.refused.inc();
    }

    /// How many connections were closed because of a bound.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// A connection's task held its reactor for so long.
    pub fn stalled(&self, took: Duration) {
        self.compute.stalled("connection", took.as_secs_f64());
    }
}
