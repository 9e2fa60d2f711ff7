//! Storage metrics under upstream's names, collected on each scrape rather than continuously. Entry point:
//! [`publish`]. Request metrics are in `crate::telemetry`.

use super::store::Stores;
use crate::controlplane::ControlPlane;
use crate::registry::resource::Backing;
use crate::storage::budget::Budget;
use crate::storage::cacher::CacheStats;
use crate::storage::cacher::counters::WAIT_BUCKETS;
use crate::sync::Mutex;
use crate::telemetry::Telemetry;
use crate::telemetry::caches::{BudgetReading, CacheReading, Caches, Wait};
use crate::telemetry::objects::Objects;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Publishes object counts, cache metrics and the size of the store. `count_every` is the maximum age of the
/// counts (`--etcd-count-metric-poll-period`); zero disables them.
pub(crate) fn publish(telemetry: &Telemetry, stores: &Arc<Stores>, plane: &ControlPlane, count_every: Duration) {
    let groups = plane.groups.iter().chain([&plane.apiregistration]);
    // By prefix, which is all that a cache knows of its resource.
    let names: HashMap<String, [String; 2]> = groups
        .clone()
        .flat_map(|g| &g.resources)
        .filter_map(|(row, _)| match &row.backing {
            Backing::Stored { prefix } => {
                let names = [row.gvr.group.to_string(), row.gvr.resource.to_string()];
                Some((prefix.clone(), names))
            }
            // Converted resources are counted under the one whose storage they share; the others store
            // nothing.
            Backing::Converted { .. } | Backing::Computed(_) | Backing::CreateOnly(_) => None,
        })
        .collect();
    let size = telemetry.storage_size_bytes.clone();
    let objects = (!count_every.is_zero()).then(|| Objects::register(telemetry));
    let counted: Mutex<Option<Instant>> = Mutex::default();
    let storages: Vec<_> = groups
        .flat_map(|g| &g.resources)
        .filter(|(row, _)| matches!(row.backing, Backing::Stored { .. }))
        .map(|(row, store)| {
            let name = (row.gvr.group.to_string(), row.gvr.resource.to_string());
            (name, Arc::downgrade(store.storage()))
        })
        .collect();
    let caches = Caches::register(telemetry);
    // Weak references: the callback must not keep a closed store alive.
    let stores = Arc::downgrade(stores);
    telemetry.before_scrape(move || {
        let Some(stores) = stores.upgrade() else { return };
        let stats = stores.stats();
        if let Some(objects) = &objects {
            let mut counted = counted.lock();
            if counted.is_none_or(|at| at.elapsed() >= count_every) {
                *counted = Some(Instant::now());
                for ((group, resource), storage) in &storages {
                    let Some(storage) = storage.upgrade() else { continue };
                    // No values for a cache that is not initialised yet.
                    let found = storage.encoded_bytes().map(|bytes| (storage.count(), bytes));
                    objects.set([group, resource], found);
                }
            }
        }
        let mut caches_stats = Vec::with_capacity(stats.caches.len());
        for (prefix, cache) in &stats.caches {
            let of = names.get(prefix).cloned().unwrap_or_else(|| custom(prefix));
            caches_stats.push((of, cache_stats(cache)));
        }
        caches.set(&caches_stats);
        caches.set_budget(&budget(stores.budget()));
        for (place, bytes) in &stats.bytes {
            size.with_label_values(&[place.as_str()]).set(*bytes as i64);
        }
    });
}

/// Group and plural of a custom resource, taken from its prefix `/registry/<group>/<plural>/`.
fn custom(prefix: &str) -> [String; 2] {
    let parts: Vec<&str> = prefix.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [.., group, plural] if parts.len() > 2 => [(*group).to_owned(), (*plural).to_owned()],
        _ => [String::new(), parts.last().copied().unwrap_or_default().to_owned()],
    }
}

fn cache_stats(cache: &CacheStats) -> CacheReading {
    let done = &cache.counters;
    let waits = done.waits.read();
    CacheReading {
        capacity: cache.capacity as u64,
        capacity_changes: [done.grown.get(), done.shrunk.get()],
        events: cache.events as u64,
        received: done.received.get(),
        dispatched: done.dispatched.get(),
        watchers: cache.watchers as u64,
        terminated: done.terminated.get(),
        initializations: done.loads.get(),
        revision: cache.revision,
        objects_bytes: cache.objects_bytes,
        history_bytes: cache.history_bytes,
        lists: done.lists.each_ref().map(|n| n.get()),
        fetched: done.fetched.each_ref().map(|n| n.get()),
        returned: done.returned.get(),
        consistent: done.consistent.each_ref().map(|n| n.get()),
        comparisons: done.comparisons.each_ref().map(|n| n.get()),
        waits: Wait {
            buckets: WAIT_BUCKETS.into_iter().zip(waits.buckets).collect(),
            count: waits.count,
            seconds: waits.seconds,
        },
    }
}

fn budget(budget: &Budget) -> BudgetReading {
    let now = budget.stats();
    BudgetReading {
        // No limit; 0, as gauges cannot show infinity.
        total: if now.total == usize::MAX { 0 } else { now.total as u64 },
        objects: now.objects as u64,
        history: now.history as u64,
        encodings: now.encodings as u64,
        encodings_limit: now.encodings_limit as u64,
        computed: now.computed,
        reused: now.reused,
        evicted: now.evicted,
        over: budget.is_over(),
    }
}
