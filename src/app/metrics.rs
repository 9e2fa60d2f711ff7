//! The store's figures under upstream's names, read when the metrics are scraped.

use super::store::Stores;
use crate::controlplane::ControlPlane;
use crate::registry::resource::Backing;
use crate::storage::backend::CacheFigures;
use crate::telemetry::{Telemetry, counters, int_gauges};
use prometheus::{IntCounterVec, IntGaugeVec};
use std::collections::HashMap;
use std::sync::Arc;

/// Publishes object counts and the size of the store.
pub fn publish(telemetry: &Telemetry, stores: &Arc<Stores>, plane: &ControlPlane) {
    let groups = plane.groups.iter().chain([&plane.apiregistration]);
    let names: HashMap<String, String> = groups
        .flat_map(|g| &g.resources)
        .filter_map(|(row, _)| match &row.backing {
            Backing::Stored { prefix } => Some((prefix.clone(), row.group_resource().to_string())),
            Backing::Converted { .. } | Backing::Computed(_) | Backing::Answered(_) => None,
        })
        .collect();
    let (objects, size) = (telemetry.storage_objects.clone(), telemetry.storage_size_bytes.clone());
    let caches = Caches::register(telemetry);
    let stores = Arc::downgrade(stores);
    telemetry.before_scrape(move || {
        let Some(stores) = stores.upgrade() else { return };
        let figures = stores.figures();
        for (prefix, count) in &figures.objects {
            let name = names.get(prefix).unwrap_or(prefix);
            objects.with_label_values(&[name]).set(*count as i64);
        }
        for (prefix, figures) in &figures.caches {
            caches.set(names.get(prefix).unwrap_or(prefix), figures);
        }
        for (place, bytes) in &figures.bytes {
            size.with_label_values(&[place.as_str()]).set(*bytes as i64);
        }
    });
}

/// The families of the watch caches: upstream's, and ours for bytes.
struct Caches {
    capacity: IntGaugeVec,
    version: IntGaugeVec,
    comparisons: IntCounterVec,
    bytes: IntGaugeVec,
    events: IntGaugeVec,
    watchers: IntGaugeVec,
}

impl Caches {
    fn register(telemetry: &Telemetry) -> Self {
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

    fn set(&self, name: &str, figures: &CacheFigures) {
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        let of = [group, resource];
        self.capacity.with_label_values(&of).set(figures.capacity as i64);
        self.version.with_label_values(&of).set(figures.revision as i64);
        self.events.with_label_values(&of).set(figures.events as i64);
        self.watchers.with_label_values(&of).set(figures.watchers as i64);
        for (part, bytes) in [("objects", figures.objects_bytes), ("history", figures.history_bytes)] {
            let gauge = self.bytes.with_label_values(&[group, resource, part]);
            gauge.set(bytes as i64);
        }
        for (status, count) in ["success", "failure", "error"].into_iter().zip(figures.comparisons) {
            let counter = self.comparisons.with_label_values(&[group, resource, status]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}
