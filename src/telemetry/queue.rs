//! The `workqueue_*` families, as client-go's.

use super::{counters, histograms, int_gauges};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use std::time::Instant;

/// Handles of one work queue.
#[derive(Clone)]
pub struct QueueMetrics {
    /// Items that wait to be handed out.
    pub depth: IntGauge,
    /// Items added to the queue since the start.
    pub adds: IntCounter,
    /// Items added again after a failure.
    pub retries: IntCounter,
    /// Seconds from adding an item to handing it out.
    pub queue_duration: Histogram,
    /// Seconds from handing an item out to completion.
    pub work_duration: Histogram,
}

impl QueueMetrics {
    /// Records work that runs synchronously here but goes through a queue of this name upstream.
    pub fn record_inline<T>(&self, work: impl FnOnce() -> T) -> T {
        self.adds.inc();
        // Nothing waits, but dashboards expect the series.
        self.queue_duration.observe(0.0);
        let began = Instant::now();
        let done = work();
        self.work_duration.observe(began.elapsed().as_secs_f64());
        done
    }
}

pub(super) struct QueueFamilies {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
}

impl QueueFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        // client-go's: from 10 ns, by powers of ten.
        let buckets: Vec<f64> = (0..10).map(|i| 1e-8 * 10f64.powi(i)).collect();
        Self {
            depth: int_gauges(r, "workqueue_depth", "Items that wait, by queue.", &["name"]),
            adds: counters(r, "workqueue_adds_total", "Items added, by queue.", &["name"]),
            retries: counters(
                r,
                "workqueue_retries_total",
                "Items added again after a failure, by queue.",
                &["name"],
            ),
            queue_duration: histograms(
                r,
                "workqueue_queue_duration_seconds",
                "Seconds an item waited before it was worked on.",
                &["name"],
                &buckets,
            ),
            work_duration: histograms(
                r,
                "workqueue_work_duration_seconds",
                "Seconds an item was worked on.",
                &["name"],
                &buckets,
            ),
        }
    }

    pub(super) fn of(&self, name: &str) -> QueueMetrics {
        QueueMetrics {
            // Looked up once per queue, since every item counts here.
            depth: self.depth.with_label_values(&[name]),
            adds: self.adds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            queue_duration: self.queue_duration.with_label_values(&[name]),
            work_duration: self.work_duration.with_label_values(&[name]),
        }
    }
}
