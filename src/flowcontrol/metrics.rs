//! The metrics of priority and fairness, under upstream's names. Counters and histograms are updated as
//! requests pass; gauges are read from the levels on each scrape ([`Gauges::set`]).

mod gauges;
mod series;

pub(crate) use gauges::{Gauges, LevelReading};
pub(crate) use series::Series;

use crate::telemetry::{Telemetry, counters, histograms};
use prometheus::{HistogramVec, IntCounterVec};
use std::sync::Arc;

// Buckets and label order of upstream's `pkg/util/flowcontrol/metrics/metrics.go`, for the same dashboards.
const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const WATCHES: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0];
const SCHEMA: [&str; 2] = ["priority_level", "flow_schema"];

/// The families that requests update.
pub(crate) struct Families {
    dispatched: IntCounterVec,
    rejected: IntCounterVec,
    waited: HistogramVec,
    executed: HistogramVec,
    queue_length: HistogramVec,
    seats: HistogramVec,
    watches: HistogramVec,
}

fn name(last: &str) -> String {
    format!("apiserver_flowcontrol_{last}")
}

impl Families {
    pub(crate) fn register(telemetry: &Telemetry) -> Arc<Self> {
        let r = telemetry.registry();
        let histogram = |last, help, more: &[&str], buckets| {
            let labels = [&SCHEMA[..], more].concat();
            histograms(r, &name(last), help, &labels, buckets)
        };
        Arc::new(Self {
            // Registered by `Telemetry`, not here.
            dispatched: telemetry.dispatched.clone(),
            rejected: counters(
                r,
                &name("rejected_requests_total"),
                "Requests that were rejected, by reason.",
                &[SCHEMA[0], SCHEMA[1], "reason"],
            ),
            waited: histogram(
                "request_wait_duration_seconds",
                "Time that requests spent in their queue, by whether they were executed.",
                &["execute"],
                SECONDS,
            ),
            executed: histogram(
                "request_execution_seconds",
                "Time that requests executed; of watches, the time of their initialization.",
                &["type"],
                SECONDS,
            ),
            queue_length: histogram(
                "request_queue_length_after_enqueue",
                "Length of the queue that a request joined, including the request.",
                &[],
                LENGTHS,
            ),
            seats: histogram(
                "work_estimated_seats",
                "Seats that requests were estimated to occupy.",
                &[],
                SEATS,
            ),
            watches: histogram("watch_count_samples", "Watches interested in a write.", &[], WATCHES),
        })
    }
}
