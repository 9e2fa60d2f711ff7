//! The families of the watch caches: upstream's, and ours for bytes.

use super::{Telemetry, counters, int_gauges};
use prometheus::{IntCounterVec, IntGaugeVec};

/// What one watch cache is at a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Events there is room for.
    pub capacity: u64,
    /// Events kept.
    pub events: u64,
    /// Running watches.
    pub watchers: u64,
    /// The newest change.
    pub revision: u64,
    /// Bytes of present objects.
    pub objects_bytes: u64,
    /// Bytes of history.
    pub history_bytes: u64,
    /// Comparisons with the store so far: equal, different, not possible.
    pub comparisons: [u64; 3],
}

/// The families.
pub struct Caches {
    capacity: IntGaugeVec,
    version: IntGaugeVec,
    comparisons: IntCounterVec,
    bytes: IntGaugeVec,
    events: IntGaugeVec,
    watchers: IntGaugeVec,
}

impl Caches {
    /// Registers them.
    pub fn register(telemetry: &Telemetry) -> Self {
        let (r, resource) = (telemetry.registry(), ["group", "resource"]);
        Self {
            capacity: int_gauges(
                r,
                "apiserver_watch_cache_capacity",
                "Events a watch cache has room for, by resource.",
                &resource,
            ),
            version: int_gauges(
                r,
                "apiserver_watch_cache_resource_version",
                "The newest change a watch cache has seen, by resource.",
                &resource,
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
                "Memory a watch cache takes: present objects, and history within its bound.",
                &["group", "resource", "part"],
            ),
            events: int_gauges(
                r,
                "torana_watch_cache_events",
                "Events a watch cache keeps, by resource.",
                &resource,
            ),
            watchers: int_gauges(
                r,
                "torana_watch_cache_watchers",
                "Running watches, by resource.",
                &resource,
            ),
        }
    }

    /// Sets those of a resource, by its group and plural.
    pub fn set(&self, of: [&str; 2], now: &Reading) {
        let [group, resource] = of;
        self.capacity.with_label_values(&of).set(now.capacity as i64);
        self.version.with_label_values(&of).set(now.revision as i64);
        self.events.with_label_values(&of).set(now.events as i64);
        self.watchers.with_label_values(&of).set(now.watchers as i64);
        for (part, bytes) in [("objects", now.objects_bytes), ("history", now.history_bytes)] {
            let gauge = self.bytes.with_label_values(&[group, resource, part]);
            gauge.set(bytes as i64);
        }
        for (status, count) in ["success", "failure", "error"].into_iter().zip(now.comparisons) {
            let counter = self.comparisons.with_label_values(&[group, resource, status]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_read_under_upstreams_names_and_ours() {
        let telemetry = Telemetry::new();
        let caches = Caches::register(&telemetry);
        let now = Reading {
            objects_bytes: 70,
            comparisons: [3, 1, 0],
            ..Reading::default()
        };
        caches.set(["apps", "deployments"], &now);
        caches.set(["apps", "deployments"], &now);
        let text = String::from_utf8(telemetry.text()).expect("text");
        for line in [
            "torana_watch_cache_bytes{group=\"apps\",part=\"objects\",resource=\"deployments\"} 70",
            "apiserver_storage_consistency_checks_total{group=\"apps\",resource=\"deployments\",status=\"success\"} 3",
            "apiserver_watch_cache_capacity{group=\"apps\",resource=\"deployments\"} 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
