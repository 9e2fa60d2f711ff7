//! Metrics of the loop that writes EndpointSlices, named as upstream's.

use super::{counters, histograms, int_gauges};
use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

/// Syncs of Services, and the resulting changes of their EndpointSlices.
pub(crate) struct EndpointSliceMetrics {
    /// Endpoints that a sync added.
    pub added: Histogram,
    /// Endpoints that a sync removed.
    pub removed: Histogram,
    /// Endpoints that all Services should have.
    pub desired: IntGauge,
    /// EndpointSlices of all Services.
    pub slices: IntGauge,
    /// EndpointSlices that there would be if only the last of each group had room left.
    pub desired_slices: IntGauge,
    /// Changes of EndpointSlices, by operation.
    pub changes: IntCounterVec,
    /// EndpointSlices that a sync changed, by topology mode and traffic distribution.
    pub changed: HistogramVec,
    /// Syncs, by result.
    pub syncs: IntCounterVec,
    /// Services, by traffic distribution.
    pub distributions: IntGaugeVec,
}

impl EndpointSliceMetrics {
    /// Registers the families. Call once per registry.
    pub(crate) fn new(r: &Registry) -> Self {
        // Upstream's: from 2 to 32,768 endpoints.
        let doubling: Vec<f64> = (1..=15).map(|n| 2f64.powi(n)).collect();
        // Named, because the element type of an empty list cannot be inferred.
        let none: [&str; 0] = [];
        let histogram = |name, help| histograms(r, name, help, &none, &doubling).with_label_values(&none);
        let gauge = |name, help| int_gauges(r, name, help, &none).with_label_values(&none);
        Self {
            added: histogram(
                "endpoint_slice_controller_endpoints_added_per_sync",
                "Endpoints that a sync of a Service added.",
            ),
            removed: histogram(
                "endpoint_slice_controller_endpoints_removed_per_sync",
                "Endpoints that a sync of a Service removed.",
            ),
            desired: gauge(
                "endpoint_slice_controller_endpoints_desired",
                "Endpoints that all Services should have.",
            ),
            slices: gauge(
                "endpoint_slice_controller_num_endpoint_slices",
                "EndpointSlices of all Services.",
            ),
            desired_slices: gauge(
                "endpoint_slice_controller_desired_endpoint_slices",
                "EndpointSlices that there would be if only the last of each group had room left.",
            ),
            changes: counters(
                r,
                "endpoint_slice_controller_changes",
                "Changes of EndpointSlices, by operation.",
                &["operation"],
            ),
            changed: histograms(
                r,
                "endpoint_slice_controller_endpointslices_changed_per_sync",
                "EndpointSlices that a sync of a Service changed, by topology mode and traffic distribution.",
                &["topology", "traffic_distribution"],
                // Odd for counts: upstream sets no buckets, so these are the defaults of Prometheus, for
                // seconds.
                &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
            ),
            syncs: counters(
                r,
                "endpoint_slice_controller_syncs",
                "Syncs of Services, by result.",
                &["result"],
            ),
            distributions: int_gauges(
                r,
                "endpoint_slice_controller_services_count_by_traffic_distribution",
                "Services, by traffic distribution.",
                &["traffic_distribution"],
            ),
        }
    }
}
