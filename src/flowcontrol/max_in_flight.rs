//! The simple limiter: so many reading requests, so many writing ones, the rest is turned away at once
//! (upstream's `server/filters/maxinflight.go`).
//!
//! Beyond upstream's: one caller cannot take all places, for instance with answers that it does not read. It may hold three
//! times as many as are free, so that one caller alone leaves a quarter, and two leave a seventh.

use prometheus::IntGauge;
use std::hash::{BuildHasher, RandomState};
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
    callers: RandomState,
}

struct Lane {
    limit: usize,
    running: AtomicUsize,
    /// The same by a hash of the caller; those who share a counter share its part.
    by_caller: [AtomicUsize; CALLERS],
    gauge: IntGauge,
}

/// Counters of callers.
const CALLERS: usize = 256;
/// A caller may hold so many times the places that are free.
const SHARE: usize = 3;

/// A request that runs; dropping it makes room.
pub struct Permit(Arc<Lane>, usize);

impl MaxInFlight {
    /// Limits; 0 is no limit. `gauges` is `apiserver_current_inflight_requests`.
    pub fn new(read_only: usize, mutating: usize, gauges: &prometheus::IntGaugeVec) -> Self {
        let lane = |limit, name| {
            Arc::new(Lane {
                limit,
                running: AtomicUsize::new(0),
                by_caller: std::array::from_fn(|_| AtomicUsize::new(0)),
                gauge: gauges.with_label_values(&[name]),
            })
        };
        Self {
            read_only: lane(read_only, "readOnly"),
            mutating: lane(mutating, "mutating"),
            callers: RandomState::new(),
        }
    }

    /// A place for a request of `caller`; `None` where all are taken, or the caller has its share, and the request is not
    /// `privileged`.
    pub fn enter(&self, kind: Kind, caller: &str, privileged: bool) -> Option<Permit> {
        let lane = match kind {
            Kind::ReadOnly => &self.read_only,
            Kind::Mutating => &self.mutating,
        };
        let before = lane.running.fetch_add(1, Ordering::Relaxed);
        let caller = self.callers.hash_one(caller) as usize % CALLERS;
        let own = lane.by_caller[caller].fetch_add(1, Ordering::Relaxed);
        lane.gauge.inc();
        let permit = Permit(lane.clone(), caller);
        let free = lane.limit.saturating_sub(before);
        (lane.limit == 0 || own < free.saturating_mul(SHARE) || privileged).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.by_caller[self.1].fetch_sub(1, Ordering::Relaxed);
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
        let first = m.enter(Kind::ReadOnly, "a", false).unwrap();
        assert!(m.enter(Kind::ReadOnly, "a", false).is_none());
        assert!(m.enter(Kind::ReadOnly, "a", true).is_some());
        assert!(m.enter(Kind::Mutating, "a", false).is_some());
        drop(first);
        assert!(m.enter(Kind::ReadOnly, "a", false).is_some());
    }

    #[test]
    fn one_caller_leaves_places_for_others() {
        let m = MaxInFlight::new(400, 0, &Telemetry::new().inflight);
        let all = |caller: &str| -> Vec<_> { std::iter::from_fn(|| m.enter(Kind::ReadOnly, caller, false)).collect() };
        let first = all("first");
        assert_eq!(first.len(), 300);
        let second = all("second");
        assert_eq!(second.len(), 75);
        drop(first);
        assert!(all("second").len() > 100, "what is free is for whoever asks");
    }

    #[test]
    fn zero_is_no_limit() {
        let m = MaxInFlight::new(0, 0, &Telemetry::new().inflight);
        let all: Vec<_> = (0..1000).map(|_| m.enter(Kind::Mutating, "a", false)).collect();
        assert!(all.iter().all(Option::is_some));
    }
}
