//! Metrics of admission policies, named as upstream's (`admission/plugin/policy/validating/metrics` and
//! `mutating/metrics`).

use super::{counters, histograms};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

// As upstream's.
const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// Evaluations of ValidatingAdmissionPolicies.
#[derive(Clone)]
pub(crate) struct AdmissionPolicyMetrics {
    checks: IntCounterVec,
    durations: HistogramVec,
}

/// The labels of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyLabels<'a> {
    /// The name of the policy.
    pub policy: &'a str,
    /// The name of the binding.
    pub binding: &'a str,
    /// Why the expression was not true.
    pub error_type: &'static str,
    /// The enforcement action, such as `deny`, `warn` or `audit`.
    pub action: &'static str,
}

impl AdmissionPolicyMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        let labels = ["policy", "policy_binding", "error_type", "enforcement_action"];
        Self {
            checks: counters(
                registry,
                "apiserver_validating_admission_policy_check_total",
                "Evaluations of validations that did not hold, by policy, binding, error and action.",
                &labels,
            ),
            durations: histograms(
                registry,
                "apiserver_validating_admission_policy_check_duration_seconds",
                "Duration of evaluations of validations that did not hold, by policy, binding, error and action.",
                &labels,
                &BUCKETS,
            ),
        }
    }

    pub(crate) fn checked(&self, of: PolicyLabels<'_>, took: Duration) {
        let labels = [of.policy, of.binding, of.error_type, of.action];
        self.checks.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

/// Evaluations of MutatingAdmissionPolicies.
#[derive(Clone)]
pub(crate) struct MutatingPolicyMetrics {
    checks: IntCounterVec,
    durations: HistogramVec,
}

impl MutatingPolicyMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        // No enforcement action: bindings of mutating policies have none.
        let labels = ["policy", "policy_binding", "error_type"];
        Self {
            checks: counters(
                registry,
                "apiserver_mutating_admission_policy_check_total",
                "Mutations, by policy, binding and error.",
                &labels,
            ),
            durations: histograms(
                registry,
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "Duration of mutations, by policy, binding and error.",
                &labels,
                &BUCKETS,
            ),
        }
    }

    pub(crate) fn checked(&self, policy: &str, binding: &str, error_type: &'static str, took: Duration) {
        let labels = [policy, binding, error_type];
        self.checks.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }
}
