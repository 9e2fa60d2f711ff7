//! Metrics of the watch caches: upstream's of v1.36, and `torana_` families for memory and the shared budget.
//! The caches count themselves; [`Caches::set`] copies their counters at a scrape.

mod budget;
mod waits;

pub(crate) use budget::BudgetReading;
pub(crate) use waits::Wait;

use super::{Telemetry, counters, int_gauges};
use crate::sync::Mutex;
use budget::Budget;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};
use std::collections::BTreeSet;
use waits::Waits;

/// Statistics of one watch cache at a scrape. Counts are since the process started.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheReading {
    /// Events the history may currently hold.
    pub capacity: u64,
    /// Number of times the capacity grew, and shrank.
    pub capacity_changes: [u64; 2],
    /// Events in the history.
    pub events: u64,
    /// Events received from the backend.
    pub received: u64,
    /// Events dispatched to watchers.
    pub dispatched: u64,
    pub watchers: u64,
    /// Watches ended because their reader was too slow.
    pub terminated: u64,
    /// Number of times the cache was filled.
    pub initializations: u64,
    /// Revision of the newest applied change.
    pub revision: u64,
    /// Memory of current objects, in bytes.
    pub objects_bytes: u64,
    /// Memory of the event history, in bytes.
    pub history_bytes: u64,
    /// Lists served by scan, and by index.
    pub lists: [u64; 2],
    /// Objects visited by those lists.
    pub fetched: [u64; 2],
    /// Objects returned by them.
    pub returned: u64,
    /// Consistent reads: served by the cache, by the store as fallback, failed.
    pub consistent: [u64; 3],
    /// Consistency checks against the store: equal, different, not possible.
    pub comparisons: [u64; 3],
    /// Time reads waited for a revision.
    pub waits: Wait,
}

/// Handles of the families. Series are per group and plural, and exist as long as the cache does.
pub(crate) struct Caches {
    // Tables, so that setting and removing the series of a resource cover the same families.
    gauges: [(IntGaugeVec, Read); 4],
    sums: [(IntCounterVec, Read); 7],
    lists: IntCounterVec,
    fetched: IntCounterVec,
    consistent: IntCounterVec,
    comparisons: IntCounterVec,
    bytes: IntGaugeVec,
    waits: Waits,
    /// Resources present at the last scrape.
    known: Mutex<BTreeSet<[String; 2]>>,
    budget: Budget,
}

/// What a family shows of one cache.
type Read = fn(&CacheReading) -> u64;

/// Gauges of one cache: name, help and value.
const GAUGES: [(&str, &str, Read); 4] = [
    (
        "watch_cache_capacity",
        "Capacity of a watch cache in events, by resource.",
        |r| r.capacity,
    ),
    (
        "apiserver_watch_cache_resource_version",
        "Revision of the newest change in a watch cache (its last 15 digits), by resource.",
        |r| r.revision % SHOWN,
    ),
    (
        "torana_watch_cache_events",
        "Events in the history of a watch cache, by resource.",
        |r| r.events,
    ),
    ("torana_watch_cache_watchers", "Open watches, by resource.", |r| {
        r.watchers
    }),
];

/// Counters of one cache: name, help and value.
const SUMS: [(&str, &str, Read); 7] = [
    (
        "watch_cache_capacity_increase_total",
        "Number of times the capacity of a watch cache increased.",
        |r| r.capacity_changes[0],
    ),
    (
        "watch_cache_capacity_decrease_total",
        "Number of times the capacity of a watch cache decreased.",
        |r| r.capacity_changes[1],
    ),
    (
        "apiserver_watch_cache_events_received_total",
        "Events received by a watch cache.",
        |r| r.received,
    ),
    (
        "apiserver_watch_cache_events_dispatched_total",
        "Events dispatched by a watch cache to watches.",
        |r| r.dispatched,
    ),
    (
        "apiserver_terminated_watchers_total",
        "Watches ended because their reader was too slow.",
        |r| r.terminated,
    ),
    (
        "apiserver_watch_cache_initializations_total",
        "Number of times a watch cache was filled.",
        |r| r.initializations,
    ),
    (
        "apiserver_cache_list_returned_objects_total",
        "Objects returned by lists served from memory.",
        |r| r.returned,
    ),
];

/// Values of upstream's `index` label: scan, and the only index.
const INDEXES: [&str; 2] = ["", "f:spec.nodeName"];
/// Revisions are exported modulo this, because larger numbers are not exact in a float; upstream does the same.
const SHOWN: u64 = 1_000_000_000_000_000;

fn raise(counter: &IntCounter, to: u64) {
    // A count that restarts from zero (a replaced cache) leaves the counter unchanged until it is passed.
    counter.inc_by(to.saturating_sub(counter.get()));
}

impl Caches {
    /// Registers the families. Call once per gateway.
    pub(crate) fn register(telemetry: &Telemetry) -> Self {
        let (r, of) = (telemetry.registry(), ["group", "resource"]);
        let waits = Waits::default();
        // Cannot fail: no other collector has this name.
        let _ = r.register(Box::new(waits.clone()));
        Self {
            waits,
            gauges: GAUGES.map(|(name, help, read)| (int_gauges(r, name, help, &of), read)),
            sums: SUMS.map(|(name, help, read)| (counters(r, name, help, &of), read)),
            lists: counters(
                r,
                "apiserver_cache_list_total",
                "Lists served from memory, by index.",
                &["group", "index", "resource"],
            ),
            fetched: counters(
                r,
                "apiserver_cache_list_fetched_objects_total",
                "Objects visited by lists served from memory, by index.",
                &["group", "index", "resource"],
            ),
            consistent: counters(
                r,
                "apiserver_watch_cache_consistent_read_total",
                "Consistent reads from a watch cache, by fallback to the store and success.",
                &["fallback", "group", "resource", "success"],
            ),
            comparisons: counters(
                r,
                "apiserver_storage_consistency_checks_total",
                "Comparisons of a watch cache with the store, by resource and result.",
                &["group", "resource", "status"],
            ),
            bytes: int_gauges(
                r,
                "torana_watch_cache_bytes",
                "Memory of a watch cache in bytes, by part: current objects or history.",
                &["group", "part", "resource"],
            ),
            known: Mutex::default(),
            budget: Budget::register(r),
        }
    }

    /// Sets the metrics of each cache in service, by group and plural. Series of other resources are removed.
    pub(crate) fn set(&self, caches: &[([String; 2], CacheReading)]) {
        let now: BTreeSet<[String; 2]> = caches.iter().map(|(of, _)| of.clone()).collect();
        // Held to the end: of two scrapes at once, neither may remove what the other has set.
        let mut known = self.known.lock();
        known.difference(&now).for_each(|gone| self.remove(gone));
        *known = now;
        for (of, cache_stats) in caches {
            self.set_one([&of[0], &of[1]], cache_stats);
        }
        let waits = caches
            .iter()
            .map(|(of, cache_stats)| (of.clone(), cache_stats.waits.clone()));
        self.waits.set(waits.collect());
    }

    fn set_one(&self, of: [&str; 2], now: &CacheReading) {
        let [group, resource] = of;
        for (family, read) in &self.gauges {
            family.with_label_values(&of).set(read(now) as i64);
        }
        for (family, read) in &self.sums {
            raise(&family.with_label_values(&of), read(now));
        }
        for (part, bytes) in [("objects", now.objects_bytes), ("history", now.history_bytes)] {
            self.bytes.with_label_values(&[group, part, resource]).set(bytes as i64);
        }
        // A series appears with its first list, as upstream.
        for (i, index) in INDEXES.into_iter().enumerate().filter(|(i, _)| now.lists[*i] > 0) {
            raise(&self.lists.with_label_values(&[group, index, resource]), now.lists[i]);
            raise(
                &self.fetched.with_label_values(&[group, index, resource]),
                now.fetched[i],
            );
        }
        // Fallback and success, in the order of `CacheReading::consistent`.
        let reads = [("false", "true"), ("true", "true"), ("true", "false")];
        for ((fallback, success), count) in reads.into_iter().zip(now.consistent).filter(|(_, n)| *n > 0) {
            let labels = [fallback, group, resource, success];
            raise(&self.consistent.with_label_values(&labels), count);
        }
        // Also at zero: an alert on failures needs a series to start from.
        for (status, count) in ["success", "failure", "error"].into_iter().zip(now.comparisons) {
            raise(&self.comparisons.with_label_values(&[group, resource, status]), count);
        }
    }

    fn remove(&self, [group, resource]: &[String; 2]) {
        // Removing a series that does not exist is harmless.
        for (family, _) in &self.gauges {
            let _ = family.remove_label_values(&[group, resource]);
        }
        for (family, _) in &self.sums {
            let _ = family.remove_label_values(&[group, resource]);
        }
        for part in ["objects", "history"] {
            let _ = self.bytes.remove_label_values(&[group, part, resource]);
        }
        for index in INDEXES {
            let _ = self.lists.remove_label_values(&[group.as_str(), index, resource]);
            let _ = self.fetched.remove_label_values(&[group.as_str(), index, resource]);
        }
        for (fallback, success) in [("false", "true"), ("true", "true"), ("true", "false")] {
            let labels = [fallback, group.as_str(), resource.as_str(), success];
            let _ = self.consistent.remove_label_values(&labels);
        }
        for status in ["success", "failure", "error"] {
            let _ = self.comparisons.remove_label_values(&[group, resource, status]);
        }
    }

    /// Sets the metrics of the shared budget.
    pub(crate) fn set_budget(&self, now: &BudgetReading) {
        self.budget.set(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(telemetry: &Telemetry) -> String {
        String::from_utf8(telemetry.text()).expect("text")
    }

    #[test]
    fn cache_series_exist_until_the_cache_is_removed() {
        let telemetry = Telemetry::new();
        let caches = Caches::register(&telemetry);
        let now = CacheReading {
            objects_bytes: 70,
            comparisons: [3, 1, 0],
            lists: [0, 2],
            terminated: 4,
            revision: 1_000_000_000_000_007,
            waits: Wait {
                buckets: vec![(0.005, 1), (3.0, 2)],
                count: 2,
                seconds: 1.5,
            },
            ..CacheReading::default()
        };
        let of = ["apps".to_owned(), "deployments".to_owned()];
        caches.set(&[(of.clone(), now.clone())]);
        caches.set(&[(of, now)]);
        let there = text(&telemetry);
        for line in [
            "torana_watch_cache_bytes{group=\"apps\",part=\"objects\",resource=\"deployments\"} 70",
            "apiserver_storage_consistency_checks_total{group=\"apps\",resource=\"deployments\",status=\"success\"} 3",
            "apiserver_cache_list_total{group=\"apps\",index=\"f:spec.nodeName\",resource=\"deployments\"} 2",
            "apiserver_terminated_watchers_total{group=\"apps\",resource=\"deployments\"} 4",
            "apiserver_watch_cache_resource_version{group=\"apps\",resource=\"deployments\"} 7",
            "watch_cache_capacity{group=\"apps\",resource=\"deployments\"} 0",
            "apiserver_watch_cache_read_wait_seconds_bucket{group=\"apps\",resource=\"deployments\",le=\"3\"} 2",
            "apiserver_watch_cache_read_wait_seconds_sum{group=\"apps\",resource=\"deployments\"} 1.5",
        ] {
            assert!(there.contains(line), "{line} in {there}");
        }
        caches.set(&[]);
        let gone = text(&telemetry);
        assert!(!gone.contains("deployments"), "{gone}");
    }

    #[test]
    fn shared_budget_is_exported() {
        let telemetry = Telemetry::new();
        let caches = Caches::register(&telemetry);
        caches.set_budget(&BudgetReading {
            total: 100,
            objects: 120,
            evicted: 5,
            over: true,
            ..BudgetReading::default()
        });
        let text = text(&telemetry);
        for line in [
            "torana_watch_cache_used_bytes{part=\"objects\"} 120",
            "torana_watch_cache_limit_bytes{part=\"all\"} 100",
            "torana_watch_cache_over_limit 1",
            "torana_watch_cache_encoding_evictions_total 5",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
