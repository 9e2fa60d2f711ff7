//! Metrics of match conditions, named as upstream's (`apiserver/pkg/admission/metrics` and
//! `apiserver/pkg/authorization/cel`).

use super::{counters, histograms};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

// As upstream's.
const BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// Evaluations of the match conditions of webhooks and policies.
#[derive(Clone)]
pub(crate) struct MatchConditionMetrics {
    errors: IntCounterVec,
    exclusions: IntCounterVec,
    durations: HistogramVec,
}

/// The labels of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionLabels<'a> {
    /// The name of the webhook or policy.
    pub name: &'a str,
    /// `webhook` or `policy`.
    pub kind: &'static str,
    /// `admit`, `validating` or `validate`.
    pub step: &'static str,
    /// The admission operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
}

impl MatchConditionMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        let labels = ["kind", "name", "operation", "type"];
        Self {
            errors: counters(
                registry,
                "apiserver_admission_match_condition_evaluation_errors_total",
                "Match conditions whose evaluation failed, by webhook or policy, operation and phase.",
                &labels,
            ),
            exclusions: counters(
                registry,
                "apiserver_admission_match_condition_exclusions_total",
                "Writes that match conditions excluded, by webhook or policy, operation and phase.",
                &labels,
            ),
            durations: histograms(
                registry,
                "apiserver_admission_match_condition_evaluation_seconds",
                "Duration of evaluations of match conditions, by webhook or policy, operation and phase.",
                &labels,
                &BUCKETS,
            ),
        }
    }

    /// Records an evaluation in which so many conditions failed.
    pub(crate) fn evaluated(&self, of: ConditionLabels<'_>, took: Duration, errors: usize) {
        let labels = of.values();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
        if errors > 0 {
            self.errors.with_label_values(&labels).inc_by(errors as u64);
        }
    }

    /// Records that a webhook was not called because of its conditions.
    pub(crate) fn excluded(&self, of: ConditionLabels<'_>) {
        self.exclusions.with_label_values(&of.values()).inc();
    }
}

impl<'a> ConditionLabels<'a> {
    fn values(&self) -> [&'a str; 4] {
        [self.kind, self.name, self.operation, self.step]
    }
}

/// Evaluations of the match conditions of authorization webhooks.
#[derive(Clone)]
pub(crate) struct AuthorizerConditionMetrics {
    errors: IntCounterVec,
    exclusions: IntCounterVec,
    durations: HistogramVec,
}

impl AuthorizerConditionMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        let labels = ["name", "type"];
        Self {
            errors: counters(
                registry,
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Evaluations of match conditions that failed, by authorizer.",
                &labels,
            ),
            exclusions: counters(
                registry,
                "apiserver_authorization_match_condition_exclusions_total",
                "Requests that match conditions excluded, by authorizer.",
                &labels,
            ),
            durations: histograms(
                registry,
                "apiserver_authorization_match_condition_evaluation_seconds",
                "Duration of evaluations of match conditions, by authorizer.",
                &labels,
                &BUCKETS,
            ),
        }
    }

    /// Records an evaluation: whether it failed, and whether it excluded the request.
    pub(crate) fn evaluated(&self, name: &str, took: Duration, failed: bool, excluded: bool) {
        // Of the authorizers, only webhooks have conditions.
        let labels = [name, "Webhook"];
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
        if failed {
            self.errors.with_label_values(&labels).inc();
        }
        if excluded {
            self.exclusions.with_label_values(&labels).inc();
        }
    }
}
