//! Metrics of client certificates, service-account tokens and impersonation, and of the authentication and
//! authorization filters.

use super::derived::{Derived, label};
use super::{Families, VALID, counters, histograms};
use prometheus::proto::LabelPair;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry};
use std::time::{Duration, SystemTime};

/// Buckets in seconds from 1 ms, doubling: upstream's for authentication, authorization and impersonation.
pub(crate) const DURATIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Buckets in seconds of `apiserver_request_filter_duration_seconds`, as upstream's.
const FILTER: [f64; 13] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0,
];

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

/// `apiserver_client_certificate_expiration_seconds`: remaining lifetime of the certificate presented with a
/// request, whether trusted or not.
#[derive(Clone, Debug)]
pub struct ClientCertificateMetrics(Histogram);

/// Creates an unregistered family by result that has the buckets of all families derived from it.
pub(super) fn filter_durations() -> HistogramVec {
    let mut buckets = [&DURATIONS[..], &FILTER].concat();
    // Both families are derived from one observation, which therefore needs the bounds of both.
    buckets.sort_by(f64::total_cmp);
    buckets.dedup();
    let opts = HistogramOpts::new("filter_duration_seconds", "Seconds, by result.").buckets(buckets);
    HistogramVec::new(opts, &["result"]).expect(VALID)
}

/// Registers the families derived from the durations of authentication and authorization, which upstream observes
/// separately.
pub(super) fn derive(families: &Families) {
    let r = &families.registry;
    let (authentication, authorization) = (&families.authentication_duration, &families.authorization_duration);
    for (name, help, source) in [
        (
            "authentication_duration_seconds",
            "Seconds an authentication took, by result.",
            authentication,
        ),
        (
            "authorization_duration_seconds",
            "Seconds an authorization took, by result.",
            authorization,
        ),
    ] {
        // The annotation turns the closure into the function pointer that `Derived` stores.
        let same: fn(&[LabelPair]) -> Option<Vec<LabelPair>> = |labels| Some(labels.to_vec());
        Derived::register(r, name, help, &["result"], &DURATIONS, vec![(source.clone(), same)]);
    }
    Derived::register(
        r,
        "apiserver_request_filter_duration_seconds",
        "Seconds a filter of the handler chain took.",
        &["filter"],
        &FILTER,
        vec![
            (authentication.clone(), |_| {
                Some(vec![label("filter", "authentication")])
            }),
            (authorization.clone(), |_| Some(vec![label("filter", "authorization")])),
        ],
    );
}

impl ClientCertificateMetrics {
    /// Registers the family. Call once per registry.
    pub fn new(registry: &Registry) -> Self {
        // As upstream's.
        let buckets = [
            0.0,
            30.0 * MINUTE,
            HOUR,
            2.0 * HOUR,
            6.0 * HOUR,
            12.0 * HOUR,
            DAY,
            2.0 * DAY,
            4.0 * DAY,
            7.0 * DAY,
            30.0 * DAY,
            90.0 * DAY,
            180.0 * DAY,
            360.0 * DAY,
        ];
        let family = histograms(
            registry,
            "apiserver_client_certificate_expiration_seconds",
            "Remaining lifetime in seconds of the client certificates presented with requests.",
            &[],
            &buckets,
        );
        Self(family.with_label_values::<&str>(&[]))
    }

    /// Records a request whose client certificate expires at `ends`.
    pub fn seen(&self, ends: SystemTime) {
        // Negative for an expired certificate, which the bucket of zero counts, as upstream.
        let left = ends.duration_since(SystemTime::now()).map(|left| left.as_secs_f64());
        self.0
            .observe(left.unwrap_or_else(|late| -late.duration().as_secs_f64()));
    }
}

/// Uses of service-account tokens. A hit in the token cache is not counted again.
#[derive(Clone, Debug)]
pub struct ServiceAccountTokenMetrics {
    /// Tokens without an audience.
    pub legacy: IntCounter,
    /// Projected tokens, used in time.
    pub valid: IntCounter,
    /// Projected tokens, used after they should have been refreshed.
    pub stale: IntCounter,
    /// Secret-based tokens whose Secret was created manually.
    pub manual: IntCounter,
    /// Secret-based tokens whose Secret was created by a controller.
    pub automatic: IntCounter,
    /// Secret-based tokens whose Secret is marked invalid.
    pub invalid: IntCounter,
}

impl ServiceAccountTokenMetrics {
    /// Registers the families. Call once per registry.
    pub fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| {
            let name = format!("serviceaccount_{name}_total");
            counters(registry, &name, help, &[]).with_label_values::<&str>(&[])
        };
        Self {
            legacy: counter("legacy_tokens", "Uses of service-account tokens without an audience."),
            valid: counter("valid_tokens", "Uses of projected service-account tokens in time."),
            stale: counter(
                "stale_tokens",
                "Uses of projected service-account tokens that are overdue.",
            ),
            manual: counter(
                "legacy_manual_token_uses",
                "Uses of service-account tokens of Secrets made by hand.",
            ),
            automatic: counter(
                "legacy_auto_token_uses",
                "Uses of service-account tokens of Secrets made by a controller.",
            ),
            invalid: counter(
                "invalid_legacy_auto_token_uses",
                "Uses of service-account tokens of Secrets that are marked invalid.",
            ),
        }
    }
}

impl Default for ServiceAccountTokenMetrics {
    /// Creates counters that are not exported.
    fn default() -> Self {
        Self::new(&Registry::new())
    }
}

/// Impersonation: whole attempts, and the authorization checks within them.
#[derive(Clone, Debug)]
pub struct ImpersonationMetrics {
    attempts: Counted,
    checks: Counted,
}

#[derive(Clone, Debug)]
// Both families have the same labels, so one call records in both.
struct Counted {
    total: IntCounterVec,
    took: HistogramVec,
}

impl Counted {
    fn new(registry: &Registry, name: &str, what: &str) -> Self {
        let labels = ["mode", "decision"];
        Self {
            total: counters(
                registry,
                &format!("apiserver_impersonation_{name}_total"),
                &format!("{what}, by mode and decision."),
                &labels,
            ),
            took: histograms(
                registry,
                &format!("apiserver_impersonation_{name}_duration_seconds"),
                &format!("Seconds of: {what}, by mode and decision."),
                &labels,
                &DURATIONS,
            ),
        }
    }

    fn note(&self, mode: &str, allowed: bool, took: Duration) {
        let labels = [mode, if allowed { "allowed" } else { "denied" }];
        self.total.with_label_values(&labels).inc();
        self.took.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

impl ImpersonationMetrics {
    /// Registers the families. Call once per registry.
    pub fn new(registry: &Registry) -> Self {
        Self {
            attempts: Counted::new(registry, "attempts", "Attempts to impersonate"),
            checks: Counted::new(
                registry,
                "authorization_attempts",
                "Checks whether a caller may impersonate",
            ),
        }
    }

    /// Records an attempt; `mode` is the mode that allowed it, if any.
    pub fn attempted(&self, mode: Option<&str>, took: Duration) {
        // A denied attempt belongs to no mode: none of them allowed it.
        self.attempts.note(mode.unwrap_or_default(), mode.is_some(), took);
    }

    /// Records an authorization check made in `mode`.
    pub fn authorized(&self, mode: &str, allowed: bool, took: Duration) {
        self.checks.note(mode, allowed, took);
    }
}

impl Default for ImpersonationMetrics {
    /// Creates counters that are not exported.
    fn default() -> Self {
        Self::new(&Registry::new())
    }
}
