//! Metrics of the token cache and of reloads of the authentication configuration.

use super::{counters, gauges, histograms};
use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec, Registry};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests to the token cache.
#[derive(Clone)]
pub struct TokenCacheMetrics {
    hit: IntCounter,
    miss: IntCounter,
    ok: IntCounter,
    error: IntCounter,
    // By result of the lookup: hit, miss.
    took: [Histogram; 2],
}

/// Reloads of `--authentication-config`.
#[derive(Clone)]
pub(crate) struct ReloadMetrics {
    total: IntCounterVec,
    last: GaugeVec,
    server: String,
}

impl TokenCacheMetrics {
    /// Registers the families. Call once per registry.
    pub fn new(registry: &Registry) -> Self {
        let requests = counters(
            registry,
            "authentication_token_cache_request_total",
            "Lookups in the token cache, by result.",
            &["status"],
        );
        let fetches = counters(
            registry,
            "authentication_token_cache_fetch_total",
            "Authentications of tokens that were not cached, by result.",
            &["status"],
        );
        let took = histograms(
            registry,
            "authentication_token_cache_request_duration_seconds",
            "Seconds that authenticating a token took, by result of the cache lookup.",
            &["status"],
            &[0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0],
        );
        Self {
            // Looked up once, since each request with a token counts here.
            hit: requests.with_label_values(&["hit"]),
            miss: requests.with_label_values(&["miss"]),
            ok: fetches.with_label_values(&["ok"]),
            error: fetches.with_label_values(&["error"]),
            took: ["hit", "miss"].map(|s| took.with_label_values(&[s])),
        }
    }

    /// Records a lookup in the cache.
    pub fn looked_up(&self, hit: bool, took: Duration) {
        if hit { &self.hit } else { &self.miss }.inc();
        self.took[usize::from(!hit)].observe(took.as_secs_f64());
    }

    /// Records the outcome of authenticating a token that was not cached.
    pub fn fetched(&self, ok: bool) {
        if ok { &self.ok } else { &self.error }.inc();
    }
}

impl ReloadMetrics {
    /// Registers the families. `server` is the `apiserver_id_hash` label. Call once per registry.
    pub(crate) fn new(registry: &Registry, server: String) -> Self {
        let labels = ["apiserver_id_hash", "status"];
        let last = gauges(
            registry,
            "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
            "When the authentication configuration was last reloaded, by outcome.",
            &labels,
        );
        Self {
            total: counters(
                registry,
                "apiserver_authentication_config_controller_automatic_reloads_total",
                "Reloads of the authentication configuration, by outcome.",
                &labels,
            ),
            last,
            server,
        }
    }

    /// Records a reload; on failure the previous configuration stays in use.
    pub(crate) fn reloaded(&self, ok: bool) {
        let labels = [self.server.as_str(), if ok { "success" } else { "failure" }];
        self.total.with_label_values(&labels).inc();
        // A clock before 1970 yields zero and not a panic.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.with_label_values(&labels).set(now.as_secs_f64());
    }
}
