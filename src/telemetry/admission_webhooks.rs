//! Metrics of admission webhooks, named as upstream's (`apiserver/pkg/admission/metrics`).

use super::{counters, histograms};
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Codes above this count as this, which bounds the number of series.
const MAX_CODE: u16 = 600;

/// Why a webhook's call led to a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionCause {
    /// The webhook denied the request.
    Denied,
    /// The call failed, and the webhook's failure policy is `Fail`.
    Call,
    /// The answer could not be applied.
    Internal,
}

/// Calls of admission webhooks.
#[derive(Clone)]
pub(crate) struct AdmissionWebhookMetrics {
    durations: HistogramVec,
    requests: IntCounterVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
}

/// The labels that all families share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookLabels<'a> {
    /// The name of the webhook.
    pub name: &'a str,
    /// `admit` or `validating`.
    pub step: &'static str,
    /// The admission operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
}

impl RejectionCause {
    const fn name(self) -> &'static str {
        match self {
            Self::Denied => "no_error",
            Self::Call => "calling_webhook_error",
            Self::Internal => "apiserver_internal_error",
        }
    }
}

impl AdmissionWebhookMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            durations: histograms(
                registry,
                "apiserver_admission_webhook_admission_duration_seconds",
                "Duration of calls of admission webhooks, by webhook, operation, outcome and phase.",
                &["name", "operation", "rejected", "type"],
                &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0],
            ),
            requests: counters(
                registry,
                "apiserver_admission_webhook_request_total",
                "Calls of admission webhooks, by webhook, status code of the outcome, operation and phase.",
                &["code", "name", "operation", "rejected", "type"],
            ),
            rejections: counters(
                registry,
                "apiserver_admission_webhook_rejection_count",
                "Requests rejected because of an admission webhook, by kind of error and status code.",
                &["error_type", "name", "operation", "rejection_code", "type"],
            ),
            fail_open: counters(
                registry,
                "apiserver_admission_webhook_fail_open_count",
                "Failed calls of admission webhooks that were ignored because of the failure policy.",
                &["name", "type"],
            ),
        }
    }

    /// Records a call. `code` is that of the outcome: 200 if the webhook admits the write, 0 for internal
    /// errors.
    pub(crate) fn called(&self, of: WebhookLabels<'_>, took: Duration, code: u16, rejected: bool) {
        let rejected = if rejected { "true" } else { "false" };
        let code = code.min(MAX_CODE).to_string();
        // The code comes first, because the durations have all labels but that.
        let labels = [&code, of.name, of.operation, rejected, of.step];
        self.requests.with_label_values(&labels).inc();
        self.durations
            .with_label_values(&labels[1..])
            .observe(took.as_secs_f64());
    }

    /// Records a write that was rejected because of a webhook. `code` is the status code of the rejection.
    pub(crate) fn rejected(&self, of: WebhookLabels<'_>, cause: RejectionCause, code: u16) {
        let code = code.min(MAX_CODE).to_string();
        let labels = [cause.name(), of.name, of.operation, &code, of.step];
        self.rejections.with_label_values(&labels).inc();
    }

    /// Records a failed call that was ignored.
    pub(crate) fn failed_open(&self, of: WebhookLabels<'_>) {
        self.fail_open.with_label_values(&[of.name, of.step]).inc();
    }
}
