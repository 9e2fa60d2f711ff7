//! The store's figures under upstream's names, read when the metrics are scraped.

use super::store::Stores;
use crate::controlplane::ControlPlane;
use crate::registry::resource::Backing;
use crate::telemetry::Telemetry;
use crate::telemetry::caches::{Caches, Reading};
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
    let storages = plane.storages().into_iter();
    let storages: Vec<_> = storages.map(|(name, s)| (name, Arc::downgrade(&s))).collect();
    let stores = Arc::downgrade(stores);
    telemetry.before_scrape(move || {
        let Some(stores) = stores.upgrade() else { return };
        let figures = stores.figures();
        for (prefix, count) in &figures.objects {
            let name = names.get(prefix).unwrap_or(prefix);
            objects.with_label_values(&[name]).set(*count as i64);
        }
        for ((group, resource), storage) in &storages {
            let Some(figures) = storage.upgrade().and_then(|s| s.figures()) else {
                continue;
            };
            let reading = Reading {
                capacity: figures.capacity as u64,
                events: figures.events as u64,
                watchers: figures.watchers as u64,
                revision: figures.revision,
                objects_bytes: figures.objects_bytes,
                history_bytes: figures.history_bytes,
                comparisons: figures.comparisons,
            };
            caches.set([group, resource], &reading);
        }
        for (place, bytes) in &figures.bytes {
            size.with_label_values(&[place.as_str()]).set(*bytes as i64);
        }
    });
}
