//! The simple limiter: so many reading requests, so many writing ones, the rest is turned away at once
//! (upstream's `server/filters/maxinflight.go`).

use prometheus::IntGauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a request counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// get, list, watch.
    ReadOnly,
    /// Everything else.
    Mutating,
}

impl Kind {
    /// The kind of a verb.
    pub fn of(verb: &str) -> Self {
        if matches!(verb, "get" | "list" | "watch") {
            Self::ReadOnly
        } else {
            Self::Mutating
        }
    }
}

/// The limiter. Clones share the count.
#[derive(Clone)]
pub struct MaxInFlight {
    read_only: Arc<Lane>,
    mutating: Arc<Lane>,
}

struct Lane {
    limit: usize,
    running: AtomicUsize,
    gauge: IntGauge,
}

/// A request that runs; dropping it makes room.
pub struct Permit(Arc<Lane>);

impl MaxInFlight {
    /// Limits; 0 is no limit. `gauges` is `apiserver_current_inflight_requests`.
    pub fn new(read_only: usize, mutating: usize, gauges: &prometheus::IntGaugeVec) -> Self {
        let lane = |limit, name| {
            Arc::new(Lane {
                limit,
                running: AtomicUsize::new(0),
                gauge: gauges.with_label_values(&[name]),
            })
        };
        Self {
            read_only: lane(read_only, "readOnly"),
            mutating: lane(mutating, "mutating"),
        }
    }

    /// A place for a request; `None` where all are taken and the request is not `privileged`.
    pub fn enter(&self, kind: Kind, privileged: bool) -> Option<Permit> {
        let lane = match kind {
            Kind::ReadOnly => &self.read_only,
            Kind::Mutating => &self.mutating,
        };
        let before = lane.running.fetch_add(1, Ordering::Relaxed);
        lane.gauge.inc();
        let permit = Permit(lane.clone());
        (lane.limit == 0 || before < lane.limit || privileged).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn lanes_fill_apart_and_the_privileged_pass() {
        let m = MaxInFlight::new(1, 2, &Telemetry::new().inflight);
        let first = m.enter(Kind::ReadOnly, false).unwrap();
        assert!(m.enter(Kind::ReadOnly, false).is_none());
        assert!(m.enter(Kind::ReadOnly, true).is_some());
        assert!(m.enter(Kind::Mutating, false).is_some());
        drop(first);
        assert!(m.enter(Kind::ReadOnly, false).is_some());
    }

    #[test]
    fn zero_is_no_limit() {
        let m = MaxInFlight::new(0, 0, &Telemetry::new().inflight);
        let all: Vec<_> = (0..1000).map(|_| m.enter(Kind::Mutating, false)).collect();
        assert!(all.iter().all(Option::is_some));
    }
}
