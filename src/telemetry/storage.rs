//! Metrics of requests to the store by resource: `etcd_request*`, `apiserver_storage_list_*`, and events
//! received from etcd. The embedded store counts its writes as such requests.
//!
//! A series is created when it first counts something, as upstream.

use super::request_parts::{self, Part};
use super::requests::DURATION;
use super::{counters, histograms, int_gauges};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[derive(Clone)]
pub(super) struct StorageFamilies {
    took: HistogramVec,
    total: IntCounterVec,
    errors: IntCounterVec,
    lists: [IntCounterVec; 4],
    events: IntCounterVec,
    bookmarks: IntCounterVec,
    bookmark_gauge: IntGaugeVec,
    undecodable: IntCounterVec,
    leased: HistogramVec,
}

// Sorted by name; label values are given in this order.
const RESOURCE: [&str; 2] = ["group", "resource"];
const OPERATION: [&str; 3] = ["group", "operation", "resource"];

impl StorageFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        let of_resource = |name, help| counters(r, name, help, &RESOURCE);
        Self {
            took: histograms(
                r,
                "etcd_request_duration_seconds",
                "Seconds a request to the store took; for a write, until it was durable.",
                &OPERATION,
                &DURATION,
            ),
            total: counters(r, "etcd_requests_total", "Requests to the store.", &OPERATION),
            errors: counters(
                r,
                "etcd_request_errors_total",
                "Requests to the store that failed.",
                &OPERATION,
            ),
            lists: [
                of_resource("apiserver_storage_list_total", "Lists served from the store itself."),
                of_resource(
                    "apiserver_storage_list_fetched_objects_total",
                    "Objects read for lists served from the store itself.",
                ),
                of_resource(
                    "apiserver_storage_list_evaluated_objects_total",
                    "Objects evaluated for lists served from the store itself.",
                ),
                of_resource(
                    "apiserver_storage_list_returned_objects_total",
                    "Objects returned by lists served from the store itself.",
                ),
            ],
            events: of_resource("apiserver_storage_events_received_total", "Changes received from etcd."),
            bookmarks: of_resource("etcd_bookmark_total", "Progress notifications received from etcd."),
            bookmark_gauge: int_gauges(
                r,
                "etcd_bookmark_counts",
                "Progress notifications received from etcd; superseded by etcd_bookmark_total.",
                &RESOURCE,
            ),
            undecodable: of_resource(
                "apiserver_storage_decode_errors_total",
                "Stored values that could not be decoded.",
            ),
            leased: histograms(
                r,
                "etcd_lease_object_counts",
                "Objects attached to an etcd lease when the next lease was created.",
                &[],
                &[10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0],
            ),
        }
    }

    pub(super) fn of(&self, group: &str, resource: &str) -> StorageMetrics {
        StorageMetrics {
            families: self.clone(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            // Looked up once per resource: a lookup by labels takes a lock and hashes three strings.
            operations: [const { OnceLock::new() }; OPERATIONS.len()],
            lists: OnceLock::new(),
            events: OnceLock::new(),
            bookmarks: OnceLock::new(),
        }
    }
}

/// Operation on a store, as in upstream's `operation` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads one object, or only the current revision.
    Get,
    /// Reads the objects of a range.
    List,
    /// Reads the keys of a range.
    ListOnlyKeys,
    /// Writes an object whose key must not exist.
    Create,
    /// Replaces an object at a known revision.
    Update,
    /// Deletes an object at a known revision.
    Delete,
}

impl Operation {
    /// The label of metrics and the attribute of spans.
    pub fn name(self) -> &'static str {
        OPERATIONS[self as usize]
    }
}

// In the order of the variants of `Operation`, which index it.
const OPERATIONS: [&str; 6] = ["get", "list", "listOnlyKeys", "create", "update", "delete"];

struct Requests {
    took: Histogram,
    total: IntCounter,
    // Apart from the others, since a series must not appear before the first error.
    errors: OnceLock<IntCounter>,
}

/// The series of one resource, created when they first count something.
pub struct StorageMetrics {
    families: StorageFamilies,
    group: String,
    resource: String,
    operations: [OnceLock<Requests>; OPERATIONS.len()],
    lists: OnceLock<[IntCounter; 4]>,
    events: OnceLock<IntCounter>,
    bookmarks: OnceLock<(IntCounter, IntGauge)>,
}

impl StorageMetrics {
    /// Creates metrics that are not exported.
    pub fn unregistered() -> Arc<Self> {
        Arc::new(StorageFamilies::new(&Registry::new()).of("", ""))
    }

    fn labels(&self) -> [&str; 2] {
        [&self.group, &self.resource]
    }

    /// Records a list served by the store: objects read, evaluated and returned.
    pub fn listed_from_store(&self, fetched: usize, evaluated: usize, returned: usize) {
        let families = &self.families.lists;
        let lists = self
            .lists
            .get_or_init(|| std::array::from_fn(|i| families[i].with_label_values(&self.labels())));
        for (counter, n) in lists.iter().zip([1, fetched, evaluated, returned]) {
            counter.inc_by(n as u64);
        }
    }

    /// Records an operation on the store and its duration, also for the current request.
    pub fn operation_done(&self, what: Operation, took: Duration, failed: bool) {
        let labels = || [&*self.group, OPERATIONS[what as usize], &*self.resource];
        let series = self.operations[what as usize].get_or_init(|| Requests {
            took: self.families.took.with_label_values(&labels()),
            total: self.families.total.with_label_values(&labels()),
            errors: OnceLock::new(),
        });
        series.took.observe(took.as_secs_f64());
        series.total.inc();
        request_parts::record(Part::Store, took);
        if failed {
            let errors = || self.families.errors.with_label_values(&labels());
            series.errors.get_or_init(errors).inc();
        }
    }

    /// Records events received from the store.
    pub fn events_received(&self, events: usize) {
        let counter = || self.families.events.with_label_values(&self.labels());
        self.events.get_or_init(counter).inc_by(events as u64);
    }

    /// Records a progress notification from the store.
    pub fn bookmark_received(&self) {
        let (counter, gauge) = self.bookmarks.get_or_init(|| {
            let labels = self.labels();
            (
                self.families.bookmarks.with_label_values(&labels),
                self.families.bookmark_gauge.with_label_values(&labels),
            )
        });
        counter.inc();
        gauge.inc();
    }

    /// Records a stored value that could not be decoded.
    pub fn decode_failed(&self) {
        // Not cached: it should never happen.
        self.families.undecodable.with_label_values(&self.labels()).inc();
    }

    /// Records the final number of objects on a lease that is no longer reused.
    pub fn lease_used(&self, objects: u32) {
        let family = &self.families.leased;
        family.with_label_values::<&str>(&[]).observe(f64::from(objects));
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::Telemetry;
    use std::time::Duration;

    use super::Operation;

    #[test]
    fn store_requests_are_counted_by_operation() {
        let telemetry = Telemetry::new();
        let m = telemetry.storage("apps", "deployments");
        m.operation_done(Operation::ListOnlyKeys, Duration::from_millis(6), false);
        m.operation_done(Operation::Create, Duration::from_millis(1), true);
        m.listed_from_store(10, 9, 2);
        m.bookmark_received();
        m.lease_used(7);
        let text = String::from_utf8(telemetry.text()).expect("text");
        let of = "group=\"apps\",resource=\"deployments\"";
        let keys = "group=\"apps\",operation=\"listOnlyKeys\",resource=\"deployments\"";
        let create = "group=\"apps\",operation=\"create\",resource=\"deployments\"";
        for line in [
            format!("etcd_request_duration_seconds_bucket{{{keys},le=\"0.025\"}} 1"),
            format!("etcd_requests_total{{{keys}}} 1"),
            format!("etcd_request_errors_total{{{create}}} 1"),
            format!("apiserver_storage_list_total{{{of}}} 1"),
            format!("apiserver_storage_list_fetched_objects_total{{{of}}} 10"),
            format!("apiserver_storage_list_evaluated_objects_total{{{of}}} 9"),
            format!("apiserver_storage_list_returned_objects_total{{{of}}} 2"),
            format!("etcd_bookmark_total{{{of}}} 1"),
            format!("etcd_bookmark_counts{{{of}}} 1"),
            "etcd_lease_object_counts_bucket{le=\"10\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(!text.contains(&format!("etcd_request_errors_total{{{keys}}}")));
    }
}
