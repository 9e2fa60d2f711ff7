//! Metrics of the compute pool, of request body memory, and of reactor stalls. They have no counterpart
//! upstream.

use super::{counter, counters, histograms, int_gauges};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

/// Handles of the families.
#[derive(Clone)]
pub struct ComputeMetrics {
    /// `torana_compute_jobs`: unfinished jobs.
    jobs: IntGauge,
    /// `torana_compute_jobs_total`.
    total: IntCounter,
    /// `torana_compute_refused_total{reason}`.
    refused: IntCounterVec,
    /// `torana_compute_interrupted_total`.
    interrupted: IntCounter,
    /// `torana_compute_poll_cpu_seconds`: CPU time of one poll.
    poll: Histogram,
    /// `torana_request_body_bytes`: bytes of request bodies held in memory.
    bodies: IntGauge,
    /// `torana_reactor_stalls_total{kind}`.
    stalls: IntCounterVec,
    /// `torana_reactor_stall_seconds`.
    stall: Histogram,
}

impl ComputeMetrics {
    /// Registers the families of the pool, of body memory and of reactor stalls.
    pub fn new(r: &Registry) -> Self {
        let gauge = |name, help| int_gauges(r, name, help, &[]).with_label_values::<&str>(&[]);
        let histogram =
            |name, help, buckets: &[f64]| histograms(r, name, help, &[], buckets).with_label_values::<&str>(&[]);
        let made = Self {
            jobs: gauge(
                "torana_compute_jobs",
                "Computations that the compute pool has accepted and not finished.",
            ),
            total: counter(
                r,
                "torana_compute_jobs_total",
                "Computations that the compute pool has accepted.",
            ),
            refused: counters(
                r,
                "torana_compute_refused_total",
                "Requests rejected because a limit was reached: jobs of one caller, jobs in total, or memory of bodies.",
                &["reason"],
            ),
            interrupted: counter(
                r,
                "torana_compute_interrupted_total",
                "Computations that were stopped because they ran too long or their request had ended.",
            ),
            poll: histogram(
                "torana_compute_poll_cpu_seconds",
                "CPU seconds of one uninterrupted stretch of work on a thread of the compute pool.",
                &[0.0002, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5],
            ),
            bodies: gauge(
                "torana_request_body_bytes",
                "Bytes of request bodies that are held in memory, small ones excepted.",
            ),
            stalls: counters(
                r,
                "torana_reactor_stalls_total",
                "Polls on a reactor thread that took longer than 10 ms, by what was polled.",
                &["kind"],
            ),
            stall: histogram(
                "torana_reactor_stall_seconds",
                "Seconds of polls on a reactor thread that took longer than 10 ms.",
                &[0.02, 0.05, 0.1, 0.25, 1.0, 5.0],
            ),
        };
        // Created at start, so that the first stall does not add a series.
        for kind in ["request", "connection"] {
            made.stalls.with_label_values(&[kind]);
        }
        made
    }

    /// Records an accepted job. [`Self::left`] must be called when it ends.
    pub fn entered(&self) {
        self.jobs.inc();
        self.total.inc();
    }

    /// Records the end of an accepted job.
    pub fn left(&self) {
        self.jobs.dec();
    }

    /// Records a refused job or body, by the limit that was reached.
    pub fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    /// Records a job that was stopped.
    pub fn interrupted(&self) {
        self.interrupted.inc();
    }

    /// Records the CPU time of one poll, in seconds.
    pub fn polled(&self, seconds: f64) {
        self.poll.observe(seconds);
    }

    /// Adjusts the bytes held by request bodies.
    pub fn bodies(&self, change: i64) {
        self.bodies.add(change);
    }

    /// Records a long poll on a reactor, in seconds. `kind` must be one of a few literals.
    pub fn stalled(&self, kind: &'static str, seconds: f64) {
        self.stalls.with_label_values(&[kind]).inc();
        self.stall.observe(seconds);
    }
}
