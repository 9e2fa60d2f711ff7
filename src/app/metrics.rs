//! The store's figures under upstream's names, read when the metrics are scraped.

use super::store::Stores;
use crate::controlplane::ControlPlane;
use crate::telemetry::Telemetry;
use crate::telemetry::caches::{Caches, Reading};
use crate::telemetry::objects::Objects;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Publishes object counts and the size of the store. `count_every`: `--etcd-count-metric-poll-period`, the age that
/// counts may have; zero: there are none.
pub fn publish(telemetry: &Telemetry, stores: &Arc<Stores>, plane: &ControlPlane, count_every: Duration) {
    let size = telemetry.storage_size_bytes.clone();
    let objects = (!count_every.is_zero()).then(|| Objects::register(telemetry));
    let counted: Mutex<Option<Instant>> = Mutex::default();
    let caches = Caches::register(telemetry);
    let storages = plane.storages().into_iter();
    let storages: Vec<_> = storages.map(|(name, s)| (name, Arc::downgrade(&s))).collect();
    let stores = Arc::downgrade(stores);
    telemetry.before_scrape(move || {
        let Some(stores) = stores.upgrade() else { return };
        let figures = stores.figures();
        if let Some(objects) = &objects {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            if counted.is_none_or(|at| at.elapsed() >= count_every) {
                *counted = Some(Instant::now());
                for ((group, resource), storage) in &storages {
                    let Some(storage) = storage.upgrade() else { continue };
                    // A cache that is not there yet tells nothing.
                    let found = storage.figures().map(|_| (storage.count(), storage.encoded_bytes()));
                    objects.set([group, resource], found);
                }
            }
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
