//! [`Integrator`]: time-weighted statistics of a value that changes in steps, such as the seats in demand
//! (upstream's `k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/integrator.go`). It has no clock: callers
//! pass the time.

use std::time::Duration;

/// The value, and its integrals since the last reset.
#[derive(Clone, Debug)]
pub(crate) struct Integrator {
    since: Duration,
    value: f64,
    seconds: f64,
    sum: f64,
    sum_of_squares: f64,
    max: f64,
}

/// Statistics of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// Length of the period. Without any time there is no average.
    pub seconds: f64,
    /// Time-weighted average.
    pub average: f64,
    /// Time-weighted standard deviation.
    pub deviation: f64,
    /// High watermark.
    pub max: f64,
}

impl Integrator {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            since: now,
            value: 0.0,
            seconds: 0.0,
            sum: 0.0,
            sum_of_squares: 0.0,
            max: 0.0,
        }
    }

    /// Sets the value from `now` on.
    pub(crate) fn set(&mut self, now: Duration, value: f64) {
        // Every request sets it, mostly to the same value, hence the short path. Without a change there is
        // nothing to integrate yet.
        if value != self.value {
            self.advance(now);
            self.value = value;
            self.max = self.max.max(value);
        }
    }

    fn advance(&mut self, now: Duration) {
        let dt = now.saturating_sub(self.since).as_secs_f64();
        // Callers read their clock before they take the lock, so times may arrive slightly out of order.
        self.since = self.since.max(now);
        self.seconds += dt;
        self.sum += self.value * dt;
        self.sum_of_squares += self.value * self.value * dt;
    }

    /// Ends the period and returns its statistics. The next period starts with the current value.
    pub(crate) fn reset(&mut self, now: Duration) -> Observed {
        self.advance(now);
        let mut observed = Observed {
            seconds: self.seconds,
            max: self.max,
            ..Observed::default()
        };
        if self.seconds > 0.0 {
            observed.average = self.sum / self.seconds;
            let variance = self.sum_of_squares / self.seconds - observed.average * observed.average;
            // Rounding can make the variance of a constant slightly negative.
            observed.deviation = variance.max(0.0).sqrt();
        }
        *self = Self {
            value: self.value,
            max: self.value,
            ..Self::new(now)
        };
        observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_weighted_by_their_time() {
        let at = Duration::from_secs;
        let mut demand = Integrator::new(at(100));
        demand.set(at(101), 4.0);
        demand.set(at(103), 0.0);
        let seen = demand.reset(at(104));
        assert_eq!((seen.seconds, seen.average, seen.max), (4.0, 2.0, 4.0));
        assert_eq!(seen.deviation, 2.0);
        demand.set(at(104), 3.0);
        let seen = demand.reset(at(105));
        assert_eq!((seen.average, seen.deviation, seen.max), (3.0, 0.0, 3.0));
    }

    #[test]
    fn a_period_starts_with_the_watermark_of_its_value() {
        let at = Duration::from_secs;
        let mut demand = Integrator::new(at(0));
        demand.set(at(0), 7.0);
        demand.set(at(1), 2.0);
        demand.reset(at(2));
        assert_eq!(demand.reset(at(3)).max, 2.0);
    }
}
