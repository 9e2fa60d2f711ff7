//! Metrics of conversion webhooks, named as upstream's.

use super::{counters, histograms};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Upstream's names for the failures of a conversion webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversionFailure {
    /// There was no successful response, or it reports a failure.
    Call,
    /// The response has another number of objects than the request.
    Partial,
    /// An object of the response is not acceptable.
    InvalidObject,
}

/// Calls of conversion webhooks.
#[derive(Clone)]
pub(crate) struct ConversionMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    by_definition: HistogramVec,
}

impl ConversionFailure {
    const fn name(self) -> &'static str {
        match self {
            Self::Call => "conversion_webhook_call_failure",
            Self::Partial => "conversion_webhook_partial_response_failure",
            Self::InvalidObject => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

impl ConversionMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        // Upstream's: from 1 ms, doubling.
        let doubling: Vec<f64> = (0..15).map(|n| 0.001 * f64::from(1 << n)).collect();
        Self {
            requests: counters(
                registry,
                "apiserver_conversion_webhook_request_total",
                "Calls of conversion webhooks, by result and kind of failure.",
                &["result", "failure_type"],
            ),
            durations: histograms(
                registry,
                "apiserver_conversion_webhook_duration_seconds",
                "Duration of calls of conversion webhooks.",
                &["result", "failure_type"],
                &[
                    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
                ],
            ),
            by_definition: histograms(
                registry,
                "apiserver_crd_conversion_webhook_duration_seconds",
                "Duration of conversions by webhooks, by definition and versions.",
                &["crd_name", "from_version", "to_version", "succeeded"],
                &doubling,
            ),
        }
    }

    /// Records one call for the definition `crd`.
    pub(crate) fn called(&self, crd: &str, from: &str, to: &str, took: Duration, failure: Option<ConversionFailure>) {
        let result = match failure {
            None => ["success", ""],
            Some(failure) => ["failure", failure.name()],
        };
        self.requests.with_label_values(&result).inc();
        self.durations.with_label_values(&result).observe(took.as_secs_f64());
        let succeeded = if failure.is_none() { "true" } else { "false" };
        let versions = [crd, from, to, succeeded];
        self.by_definition
            .with_label_values(&versions)
            .observe(took.as_secs_f64());
    }
}
