//! Metrics of the memory budget that all watch caches share.

use super::raise;
use crate::telemetry::{counter, counters, int_gauges};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

/// Usage of the budget shared by all watch caches at a scrape: bytes, and counts since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BudgetReading {
    /// The total limit; 0 if unlimited.
    pub total: u64,
    pub objects: u64,
    /// Memory of the event history, in bytes.
    pub history: u64,
    pub encodings: u64,
    /// The limit that currently applies to cached encodings.
    pub encodings_limit: u64,
    /// Number of encodings computed.
    pub computed: u64,
    /// Number of cache hits.
    pub reused: u64,
    /// Number of encodings evicted.
    pub evicted: u64,
    /// True if the current objects alone exceed the total.
    pub over: bool,
}

/// Handles of the families.
pub(super) struct Budget {
    used: IntGaugeVec,
    limit: IntGaugeVec,
    over: IntGauge,
    encodings: IntCounterVec,
    evictions: IntCounter,
}

impl Budget {
    /// Registers the families. Call once per registry.
    pub(super) fn register(r: &Registry) -> Self {
        Self {
            used: int_gauges(
                r,
                "torana_watch_cache_used_bytes",
                "Memory of all watch caches in bytes, by part: current objects, history or cached encodings.",
                &["part"],
            ),
            limit: int_gauges(
                r,
                "torana_watch_cache_limit_bytes",
                "Memory limits of the watch caches in bytes: of all parts, and of cached encodings within that.",
                &["part"],
            ),
            over: int_gauges(
                r,
                "torana_watch_cache_over_limit",
                "1 if the current objects alone exceed the limit of all parts.",
                &[],
            )
            .with_label_values::<&str>(&[]),
            encodings: counters(
                r,
                "torana_watch_cache_encodings_total",
                "Requests for cached encodings, by whether the encoding was made or reused.",
                &["result"],
            ),
            evictions: counter(
                r,
                "torana_watch_cache_encoding_evictions_total",
                "Cached encodings that were evicted.",
            ),
        }
    }

    pub(super) fn set(&self, now: &BudgetReading) {
        let parts = [
            ("objects", now.objects),
            ("history", now.history),
            ("encodings", now.encodings),
        ];
        for (part, bytes) in parts {
            self.used.with_label_values(&[part]).set(bytes as i64);
        }
        for (part, bytes) in [("all", now.total), ("encodings", now.encodings_limit)] {
            self.limit.with_label_values(&[part]).set(bytes as i64);
        }
        self.over.set(i64::from(now.over));
        raise(&self.encodings.with_label_values(&["made"]), now.computed);
        raise(&self.encodings.with_label_values(&["reused"]), now.reused);
        raise(&self.evictions, now.evicted);
    }
}
