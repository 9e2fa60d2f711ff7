//! [`Utilization`]: how much of a level was in use over time, as fractions of its capacity. The level updates it
//! at the end of each critical section; `metrics::gauges` exposes it.

use super::queueset::{QueueSet, Queuing};
use crate::telemetry::timed::TimedHistogram;
use std::time::Duration;

// Buckets of upstream's `pkg/util/flowcontrol/metrics/metrics.go`. Demand may exceed the seats, hence its
// buckets above 1.
const SEATS: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// Fractions of a level's capacity over time.
pub(crate) struct Utilization {
    pub seats: TimedHistogram,
    /// Executing requests: of the seats, too, so this is low where requests are wide.
    pub executing: TimedHistogram,
    /// Waiting requests, of all places in queues.
    pub waiting: TimedHistogram,
    /// Seats that requests use or wait for.
    pub demand: TimedHistogram,
}

impl Utilization {
    /// The statistics of a level without requests.
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            seats: TimedHistogram::new(SEATS, now),
            executing: TimedHistogram::new(REQUESTS, now),
            waiting: TimedHistogram::new(REQUESTS, now),
            demand: TimedHistogram::new(DEMAND, now),
        }
    }

    /// Notes the current state. A level without seats is measured by a tenth of the server's, as upstream.
    pub(crate) fn note<T>(&mut self, now: Duration, set: &QueueSet<T>, tenth_of_server: u32) {
        let totals = set.totals();
        let seats = f64::from(match set.limit() {
            0 => tenth_of_server.max(1),
            limit => limit,
        });
        let places = match set.queuing() {
            Queuing::Queues { dealer, length_limit } => f64::from(dealer.deck()) * f64::from(length_limit.max(1)),
            // Nothing waits in such a level; the divisor only has to differ from zero.
            _ => 1.0,
        };
        self.seats.set(now, f64::from(totals.seats_in_use) / seats);
        self.executing.set(now, f64::from(totals.executing) / seats);
        self.waiting.set(now, f64::from(totals.waiting) / places);
        let demand = f64::from(totals.seats_in_use) + totals.seats_waiting as f64;
        self.demand.set(now, demand / seats);
    }
}
