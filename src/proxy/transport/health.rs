//! [`Health`]: passive outlier ejection of the addresses of one backend; [`InFlight`]: how busy an address
//! is.
//!
//! ```text
//! in use ──3 failures in a row,──► ejected for 1 s ──time is up──► on probation: probed by us (`probation`)
//!    ▲     or a missed ping           ▲                               │
//!    │                                └──────── one more failure: twice as long, at most 30 s
//!    └─────────────────────────────────────────────────────── one success
//! ```
//!
//! Failures during an ejection belong to requests sent before it and do not extend it. An address returns
//! once it has answered a probe; until then it receives requests only if no other address is usable.

use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Consecutive failures that eject an address.
const EJECTION_THRESHOLD: u32 = 3;
const FIRST_EJECTION: Duration = Duration::from_secs(1);
const MAX_EJECTION: Duration = Duration::from_secs(30);
/// How long after the end of its last ejection an address is remembered. While an address on probation is in
/// use it is probed, which either clears the ejection or begins another.
const FORGET_AFTER: Duration = Duration::from_secs(90);

/// Counts the requests in flight to one address.
#[derive(Default)]
pub(super) struct InFlight(Arc<AtomicUsize>);

/// One request in flight, until dropped.
pub(super) struct InFlightGuard(Arc<AtomicUsize>);

/// Passive health of one address.
pub(super) struct Health {
    // Relaxed throughout: health is a hint, and a stale value costs at most one badly placed request.
    began: OnceLock<Instant>,
    failures: AtomicU32,
    /// Ejections since a request last succeeded; each doubles the next ejection.
    ejections: AtomicU32,
    /// Milliseconds since `began`, 0 if not ejected. It stays in the past while the address is on probation.
    ejected_until: AtomicU64,
    last_failure: Mutex<Option<String>>,
}

// === impl InFlight ===

impl InFlight {
    pub(super) fn enter(&self) -> InFlightGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.0.clone())
    }

    pub(super) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Health ===

impl Default for Health {
    fn default() -> Self {
        Self {
            began: OnceLock::new(),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            last_failure: Mutex::default(),
        }
    }
}

impl Health {
    pub(super) fn succeeded(&self) {
        // In the common case there is no store, so that the cache line stays shared between threads.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.ejections.store(0, Ordering::Relaxed);
            self.ejected_until.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self, why: &str) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= EJECTION_THRESHOLD && self.is_not_ejected() {
            self.eject();
        }
        *self.last() = Some(why.to_owned());
    }

    /// Ejects an address that missed a ping at once, regardless of the count of failures.
    pub(super) fn ping_missed(&self, why: &str) {
        // Not 0: `succeeded` resets an ejection only if failures are counted.
        self.failures.fetch_max(EJECTION_THRESHOLD, Ordering::Relaxed);
        if self.is_not_ejected() {
            self.eject();
        }
        *self.last() = Some(why.to_owned());
    }

    fn eject(&self) {
        // Two threads that fail at the same time may both get here; the ejection is then one step longer.
        let before = self.ejections.fetch_add(1, Ordering::Relaxed);
        let pause = FIRST_EJECTION * (1 << before.min(5));
        let until = self.now() + pause.min(MAX_EJECTION);
        // Never 0, which would mean "not ejected": an ejection lasts at least a second.
        self.ejected_until.store(until.as_millis() as u64, Ordering::Relaxed);
    }

    pub(super) fn is_not_ejected(&self) -> bool {
        // The first comparison spares healthy addresses a look at the clock.
        self.ejected_until.load(Ordering::Relaxed) == 0 || self.ejected_for().is_none()
    }

    pub(super) fn ejected_for(&self) -> Option<Duration> {
        let until = Duration::from_millis(self.ejected_until.load(Ordering::Relaxed));
        until.checked_sub(self.now()).filter(|left| !left.is_zero())
    }

    /// Its ejection has elapsed, but no request has succeeded since.
    pub(super) fn is_on_probation(&self) -> bool {
        self.was_ejected() && self.is_not_ejected()
    }

    /// It was never ejected, or so long ago that it has not been in use since.
    pub(super) fn may_be_forgotten(&self) -> bool {
        let until = Duration::from_millis(self.ejected_until.load(Ordering::Relaxed));
        until.is_zero() || self.now() >= until + FORGET_AFTER
    }

    pub(super) fn was_ejected(&self) -> bool {
        self.ejected_until.load(Ordering::Relaxed) != 0
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn last_failure(&self) -> Option<String> {
        self.last().clone()
    }

    fn now(&self) -> Duration {
        self.began.get_or_init(Instant::now).elapsed()
    }

    fn last(&self) -> MutexGuard<'_, Option<String>> {
        self.last_failure.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_ejected_after_three_failures_and_then_for_twice_as_long() {
        let h = Health::default();
        h.failed("a");
        h.failed("b");
        assert!(h.is_not_ejected());
        h.failed("c");
        assert!(!h.is_not_ejected());
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert!(h.is_not_ejected(), "on probation");
        h.failed("d");
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert!(!h.is_not_ejected(), "twice as long");
        h.succeeded();
        assert!(h.is_not_ejected());
        assert_eq!((h.failures(), h.last_failure().as_deref()), (0, Some("d")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ejection_is_remembered_for_a_while_after_its_end() {
        let h = Health::default();
        assert!(h.may_be_forgotten());
        h.ping_missed("no answer to a ping");
        assert!(!h.may_be_forgotten());
        tokio::time::advance(FIRST_EJECTION + FORGET_AFTER / 2).await;
        assert!(!h.may_be_forgotten(), "on probation");
        tokio::time::advance(FORGET_AFTER).await;
        assert!(h.may_be_forgotten());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_one_connection_eject_only_once() {
        let h = Health::default();
        for _ in 0..300 {
            h.failed("requests on the connection that died");
        }
        assert_eq!(h.ejected_for(), Some(FIRST_EJECTION));
        tokio::time::advance(Duration::from_millis(1100)).await;
        h.ping_missed("no answer to a ping");
        h.failed("a request on that connection");
        assert_eq!(h.ejected_for(), Some(FIRST_EJECTION * 2));
    }
}
