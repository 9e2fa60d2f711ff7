//! Concurrency limits for read-only and mutating requests; excess requests are rejected immediately
//! (upstream's `k8s.io/apiserver/pkg/server/filters/maxinflight.go`). Start at [`MaxInFlight::try_acquire`].
//!
//! Unlike upstream, one caller cannot exhaust the limit, for example with responses that it does not read
//! ([`Shares`]).

use crate::tasks::shares::{Caller, Shares};
use prometheus::IntGauge;
use std::sync::Arc;

/// Which limit applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// `get`, `list` and `watch`.
    ReadOnly,
    /// All other verbs.
    Mutating,
}

impl RequestClass {
    /// The limit that applies to a verb.
    pub fn of(verb: &str) -> Self {
        if matches!(verb, "get" | "list" | "watch") {
            Self::ReadOnly
        } else {
            Self::Mutating
        }
    }
}

/// The limiter. Clones share their counters.
#[derive(Clone)]
pub struct MaxInFlight {
    read_only: Arc<Limiter>,
    mutating: Arc<Limiter>,
}

struct Limiter {
    limit: usize,
    shares: Shares,
    gauge: IntGauge,
}

/// Counters per row of the table of callers.
const CALLERS: u16 = 256;

/// A request in flight; dropping it frees the slot.
pub struct Permit(Arc<Limiter>, Caller);

impl MaxInFlight {
    /// A limiter with these limits; 0 means unlimited. `gauges` is `apiserver_current_inflight_requests`.
    pub fn new(read_only: usize, mutating: usize, gauges: &prometheus::IntGaugeVec) -> Self {
        let limiter = |limit, name| {
            Arc::new(Limiter {
                limit,
                shares: Shares::new(CALLERS),
                gauge: gauges.with_label_values(&[name]),
            })
        };
        Self {
            read_only: limiter(read_only, "readOnly"),
            mutating: limiter(mutating, "mutating"),
        }
    }

    /// Reserves a slot for a request of `caller`. `None` if the limit or the caller's share is exhausted and
    /// the request is not `privileged`.
    pub fn try_acquire(&self, kind: RequestClass, caller: &str, privileged: bool) -> Option<Permit> {
        let limiter = match kind {
            RequestClass::ReadOnly => &self.read_only,
            RequestClass::Mutating => &self.mutating,
        };
        let caller = limiter.shares.enter(limiter.limit, caller, || privileged)?;
        limiter.gauge.inc();
        Some(Permit(limiter.clone(), caller))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.shares.leave(self.1);
        self.0.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn limits_are_independent_and_privileged_requests_bypass_them() {
        let m = MaxInFlight::new(1, 2, &Telemetry::new().inflight);
        let first = m.try_acquire(RequestClass::ReadOnly, "a", false).unwrap();
        assert!(m.try_acquire(RequestClass::ReadOnly, "a", false).is_none());
        assert!(m.try_acquire(RequestClass::ReadOnly, "a", true).is_some());
        assert!(m.try_acquire(RequestClass::Mutating, "a", false).is_some());
        drop(first);
        assert!(m.try_acquire(RequestClass::ReadOnly, "a", false).is_some());
    }

    #[test]
    fn one_caller_leaves_slots_for_others() {
        let m = MaxInFlight::new(400, 0, &Telemetry::new().inflight);
        let all = |caller: &str| -> Vec<_> {
            std::iter::from_fn(|| m.try_acquire(RequestClass::ReadOnly, caller, false)).collect()
        };
        let first = all("first");
        assert_eq!(first.len(), 300);
        let second = all("second");
        assert_eq!(second.len(), 75);
        drop(first);
        assert!(all("second").len() > 100, "freed slots are available to any caller");
    }

    #[test]
    fn zero_means_unlimited() {
        let m = MaxInFlight::new(0, 0, &Telemetry::new().inflight);
        let all: Vec<_> = (0..1000)
            .map(|_| m.try_acquire(RequestClass::Mutating, "a", false))
            .collect();
        assert!(all.iter().all(Option::is_some));
    }
}
