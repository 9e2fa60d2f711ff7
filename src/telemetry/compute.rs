//! Families of the compute pool, of the memory of requests, and of the stall detector. They have no counterpart upstream.

use super::{counter, counters, histograms, int_gauges};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

/// The families.
#[derive(Clone)]
pub struct ComputeMetrics {
    /// `torana_compute_jobs{state}`: jobs that are in the pool.
    jobs: IntGauge,
    /// `torana_compute_jobs_total`.
    total: IntCounter,
    /// `torana_compute_refused_total{reason}`.
    refused: IntCounterVec,
    /// `torana_compute_interrupted_total`.
    interrupted: IntCounter,
    /// `torana_compute_poll_cpu_seconds`: CPU time of one uninterrupted stretch of work.
    poll: Histogram,
    /// `torana_request_body_bytes`: request bodies held in memory.
    bodies: IntGauge,
    /// `torana_reactor_stalls_total{kind}`.
    stalls: IntCounterVec,
    /// `torana_reactor_stall_seconds`.
    stall: Histogram,
}

impl ComputeMetrics {
    /// Registers them.
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
                "Requests turned away because a bound was reached: jobs of one caller, jobs in all, memory of bodies.",
                &["reason"],
            ),
            interrupted: counter(
                r,
                "torana_compute_interrupted_total",
                "Computations that were stopped: they ran too long, or nobody waited for them any more.",
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
        // There from the start, so that a first stall adds no series.
        for kind in ["request", "connection"] {
            made.stalls.with_label_values(&[kind]);
        }
        made
    }

    /// A job was accepted; [`Self::left`] must follow.
    pub fn entered(&self) {
        self.jobs.inc();
        self.total.inc();
    }

    /// An accepted job is over.
    pub fn left(&self) {
        self.jobs.dec();
    }

    /// A request was turned away.
    pub fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    /// A job was stopped.
    pub fn interrupted(&self) {
        self.interrupted.inc();
    }

    /// One stretch of work took so many seconds of CPU time.
    pub fn polled(&self, seconds: f64) {
        self.poll.observe(seconds);
    }

    /// Request bodies hold so many bytes more, or less.
    pub fn bodies(&self, change: i64) {
        self.bodies.add(change);
    }

    /// A poll on a reactor took so many seconds; `kind` is one of a few literals.
    pub fn stalled(&self, kind: &'static str, seconds: f64) {
        self.stalls.with_label_values(&[kind]).inc();
        self.stall.observe(seconds);
    }
}
