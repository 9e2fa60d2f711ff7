//! Metrics of auditing, named as upstream's.

use super::counters;
use crate::telemetry::counter;
use prometheus::{IntCounter, IntCounterVec, Registry};

/// Audit events, levels and errors.
#[derive(Clone)]
pub(crate) struct AuditMetrics {
    /// `apiserver_audit_event_total`
    pub events: IntCounter,
    /// `apiserver_audit_error_total{plugin}`
    errors: IntCounterVec,
    /// `apiserver_audit_level_total{level}`
    levels: IntCounterVec,
    /// `apiserver_audit_requests_rejected_total`
    pub rejected: IntCounter,
}

impl AuditMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            events: counter(
                registry,
                "apiserver_audit_event_total",
                "Audit events generated and sent to the backends.",
            ),
            errors: counters(
                registry,
                "apiserver_audit_error_total",
                "Audit events that were not recorded properly, by the part that failed.",
                &["plugin"],
            ),
            levels: counters(
                registry,
                "apiserver_audit_level_total",
                "Requests by the level the audit policy records them at.",
                &["level"],
            ),
            rejected: counter(
                registry,
                "apiserver_audit_requests_rejected_total",
                "Requests rejected because their audit event could not be stored.",
            ),
        }
    }

    /// Records that `plugin` failed to store `events`.
    pub(crate) fn failed(&self, plugin: &str, events: usize) {
        // By event and not by batch, so that batched and blocking backends compare.
        self.errors.with_label_values(&[plugin]).inc_by(events as u64);
    }

    /// Records the audit level of a request.
    pub(crate) fn at_level(&self, level: &str) {
        self.levels.with_label_values(&[level]).inc();
    }
}
