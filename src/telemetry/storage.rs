//! What is written to the store, by resource: `etcd_request_duration_seconds`.
//!
//! A series appears with the first request it counts.

use super::histograms;
use super::requests::DURATION;
use prometheus::{Histogram, HistogramVec, Registry};
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Clone)]
pub(super) struct StorageFamilies {
    writes: HistogramVec,
}

impl StorageFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
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
    writes: [OnceLock<Histogram>; 3],
}

impl StorageMetrics {
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
