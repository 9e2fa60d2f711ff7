//! Metrics of auditing, under upstream's names.

use super::counters;
use crate::telemetry::counter;
use prometheus::{IntCounter, IntCounterVec, Registry};

/// Counts events and what went wrong with them.
#[derive(Clone)]
pub struct AuditMetrics {
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
    /// Registers them. To be made once per registry.
    pub fn new(registry: &Registry) -> Self {
        Self {
            events: counter(
                registry,
                "apiserver_audit_event_total",
                "Audit events made and handed to the backends.",
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
                "Requests refused because their audit event could not be stored.",
            ),
        }
    }

    /// `events` were not recorded properly by `plugin`.
    pub fn failed(&self, plugin: &str, events: usize) {
        self.errors.with_label_values(&[plugin]).inc_by(events as u64);
    }

    /// A request is recorded at this level.
    pub fn at_level(&self, level: &str) {
        self.levels.with_label_values(&[level]).inc();
    }
}
