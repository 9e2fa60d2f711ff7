//! What is read from and written to the store, by resource: `apiserver_cache_list_*` and `etcd_request_duration_seconds`.
//!
//! A series appears with the first request it counts.

use super::requests::DURATION;
use super::{counters, histograms};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Clone)]
pub(super) struct StorageFamilies {
    lists: IntCounterVec,
    returned: IntCounterVec,
    writes: HistogramVec,
}

impl StorageFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            lists: counters(
                r,
                "apiserver_cache_list_total",
                "Lists served from memory.",
                &["group", "index", "resource"],
            ),
            returned: counters(
                r,
                "apiserver_cache_list_returned_objects_total",
                "Objects in lists served from memory.",
                &["group", "resource"],
            ),
            writes: histograms(
                r,
                "etcd_request_duration_seconds",
                "Seconds from a write handed to the store to its being durable.",
                &["group", "operation", "resource"],
                &DURATION,
            ),
        }
    }

    pub(super) fn of(&self, group: &str, resource: &str) -> StorageMetrics {
        StorageMetrics {
            families: self.clone(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            lists: OnceLock::new(),
            writes: [const { OnceLock::new() }; 3],
        }
    }
}

/// A write, as upstream names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new object.
    Create,
    /// A changed one.
    Update,
    /// One that goes.
    Delete,
}

/// The series of one resource.
pub struct StorageMetrics {
    families: StorageFamilies,
    group: String,
    resource: String,
    lists: OnceLock<(IntCounter, IntCounter)>,
    writes: [OnceLock<Histogram>; 3],
}

impl StorageMetrics {
    /// A list of so many objects was served.
    pub fn listed(&self, objects: usize) {
        let (lists, returned) = self.lists.get_or_init(|| {
            let labels = [self.group.as_str(), self.resource.as_str()];
            (
                self.families.lists.with_label_values(&[labels[0], "", labels[1]]),
                self.families.returned.with_label_values(&labels),
            )
        });
        lists.inc();
        returned.inc_by(objects as u64);
    }

    /// A write took so long.
    pub fn wrote(&self, what: Write, took: Duration) {
        let (slot, operation) = match what {
            Write::Create => (0, "create"),
            Write::Update => (1, "update"),
            Write::Delete => (2, "delete"),
        };
        self.writes[slot]
            .get_or_init(|| {
                let labels = [self.group.as_str(), operation, self.resource.as_str()];
                self.families.writes.with_label_values(&labels)
            })
            .observe(took.as_secs_f64());
    }
}
