//! [`Budget`]: the memory that all watch caches of a gateway may use together, and what shrinks when it runs
//! out.
//!
//! | part | own bound | under memory pressure |
//! |---|---|---|
//! | cached encodings | a separate limit | evicted first, down to [`FLOOR`] |
//! | event history | per ring; aged events 16 MiB | rings shrink proportionally, to their minimum of events |
//! | current objects | what is stored | cannot shrink: still served, and reported ([`Budget::is_over`]) |
//!
//! One [`Budget`] per gateway is shared by all backends. Each cache accounts for its memory through a
//! [`Share`], which returns everything on drop. [`Budget::admit_watch`] bounds the number of watches and the
//! frames they hold.

mod watches;

pub(crate) use watches::{TooMany, WatchBounds, WatchPermit};

use super::encoding_cache::EncodingCache;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of cached encodings always allowed, so that a frame for many watchers is encoded only once even
/// under memory pressure. Fits the largest object.
pub(crate) const FLOOR: usize = 4 << 20;
/// Default limit for cached encodings, in bytes.
pub(crate) const ENCODINGS: usize = 64 << 20;

/// Bytes that the histories of all resources may use together regardless of the age of their events: what an
/// idle gateway keeps for ever, however many resources it serves.
const AGED_HISTORY: usize = 16 << 20;
/// Bytes that the history of each resource may use regardless of age, whatever the others use.
const AGED_FLOOR: usize = 64 << 10;

/// The bounds to which the history of one resource has to shrink so that all of them fit the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryLimits {
    /// Bytes that events beyond the minimum may use.
    pub bytes: usize,
    /// Bytes that the minimum of events may use.
    pub min_bytes: usize,
}

/// Memory accounting for all watch caches.
pub struct Budget {
    total: usize,
    encodings: usize,
    objects: AtomicUsize,
    history: AtomicUsize,
    over: AtomicBool,
    pub(super) encoding_cache: Arc<EncodingCache>,
    watches: Arc<watches::WatchRegistry>,
}

/// A reading of a budget: bytes, and counts since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetStats {
    /// The limit for everything together.
    pub total: usize,
    /// Current objects, in the form (maybe compressed) in which they are kept.
    pub objects: usize,
    /// Event history, including past states.
    pub history: usize,
    /// Encodings that are cached with their objects.
    pub encodings: usize,
    /// The limit that currently applies to cached encodings.
    pub encodings_limit: usize,
    /// Number of encodings computed.
    pub computed: u64,
    /// Number of cache hits.
    pub reused: u64,
    /// Number of encodings evicted.
    pub evicted: u64,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

impl Budget {
    /// Creates a budget of `total` bytes, of which cached encodings may use `encodings`.
    pub fn new(total: usize, encodings: usize) -> Arc<Self> {
        Self::with_watch_bounds(total, encodings, WatchBounds::default())
    }

    /// As [`new`](Self::new), with limits on watches.
    pub fn with_watch_bounds(total: usize, encodings: usize, watches: WatchBounds) -> Arc<Self> {
        Arc::new(Self {
            watches: watches::WatchRegistry::new(watches),
            total,
            encodings,
            objects: AtomicUsize::new(0),
            history: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            encoding_cache: Arc::default(),
        })
    }

    /// A budget without limits other than the default one for cached encodings.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX, ENCODINGS)
    }

    /// Reads current usage and counters.
    pub fn stats(&self) -> BudgetStats {
        let (computed, reused, evicted) = self.encoding_cache.counts();
        BudgetStats {
            total: self.total,
            objects: self.objects.load(Ordering::Relaxed),
            history: self.history.load(Ordering::Relaxed),
            encodings: self.encoding_cache.bytes(),
            encodings_limit: self.encodings_limit(),
            computed,
            reused,
            evicted,
        }
    }

    /// The limits on watches that share this budget.
    pub fn watch_bounds(&self) -> WatchBounds {
        self.watches.bounds
    }

    /// Reserves a place for a watch of this user, whose selectors have this many terms. Watches of `exempt`
    /// users count but are never refused.
    ///
    /// # Errors
    /// [`TooMany`] if a limit is reached.
    pub fn admit_watch(&self, user: &str, terms: usize, exempt: bool) -> Result<WatchPermit, TooMany> {
        self.watches.admit(user, terms, exempt)
    }

    /// True if the current objects alone exceed the total, so that nothing is left to evict.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Logs when [`is_over`](Self::is_over) begins and ends. It ends 5% below the limit, so that it does not
    /// flap.
    fn report_pressure(&self) {
        let objects = self.objects.load(Ordering::Relaxed);
        let was = self.is_over();
        // Two thresholds, so that usage around the limit does not log at every write.
        let over = objects > if was { self.total - self.total / 20 } else { self.total };
        // `swap` decides between concurrent callers, so each transition is logged once.
        if over == was || self.over.swap(over, Ordering::Relaxed) == over {
            return;
        }
        if over {
            tracing::warn!(
                objects,
                limit = self.total,
                "the stored objects need more memory than the watch caches may take (--watch-cache-max-bytes): they \
                 are still served; history and cached encodings are kept at their minimum"
            );
        } else {
            tracing::info!(
                objects,
                limit = self.total,
                "the watch caches are within their memory limit again"
            );
        }
    }

    /// Returns the memory of bookkeeping that a burst has left behind. Called periodically.
    pub(crate) fn maintain(&self) {
        self.encoding_cache.purge();
    }

    /// Bytes that cached encodings may currently use.
    pub fn encodings_limit(&self) -> usize {
        // Saturating and relaxed: caches update their shares independently, so the sum may be off for a
        // moment.
        let others = self.objects.load(Ordering::Relaxed) + self.history.load(Ordering::Relaxed);
        self.encodings.min(self.total.saturating_sub(others).max(FLOOR))
    }

    /// Bytes that a ring using `own` bytes may keep beyond its minimum, so that all rings together fit the
    /// budget.
    fn ring_limit(&self, own: usize) -> usize {
        // Objects come first because they cannot shrink; histories share what is left.
        let available = self.total.saturating_sub(self.objects.load(Ordering::Relaxed));
        let all = self.history.load(Ordering::Relaxed);
        match all <= available {
            true => usize::MAX,
            false => proportional(own, available, all),
        }
    }

    /// Bytes that a ring using `own` bytes may keep regardless of age.
    fn aged_limit(&self, own: usize) -> usize {
        let all = self.history.load(Ordering::Relaxed);
        // The common case: together they are small, and the ring keeps its own minimum.
        match all <= AGED_HISTORY {
            true => usize::MAX,
            false => proportional(own, AGED_HISTORY, all).max(AGED_FLOOR),
        }
    }
}

/// The share of `available` bytes of one that uses `own` of `all` bytes.
fn proportional(own: usize, available: usize, all: usize) -> usize {
    // In u128: the product of two byte counts can overflow usize.
    // Both callers have compared `all` with a limit that it exceeds, so it is not 0.
    (own as u128 * available as u128 / all as u128) as usize
}

/// The part of a budget that one cache uses.
pub(crate) struct Share {
    budget: Arc<Budget>,
    objects: AtomicUsize,
    history: AtomicUsize,
}

impl Share {
    /// Creates an empty share.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            objects: AtomicUsize::new(0),
            history: AtomicUsize::new(0),
        }
    }

    /// Records the cache's current usage. Must not be called concurrently.
    pub(crate) fn set(&self, objects: usize, history: usize) {
        // Only the difference is added to the shared counters, so no other share has to be read.
        let change = |own: &AtomicUsize, all: &AtomicUsize, now: usize| {
            let was = own.swap(now, Ordering::Relaxed);
            if now >= was {
                all.fetch_add(now - was, Ordering::Relaxed);
            } else {
                all.fetch_sub(was - now, Ordering::Relaxed);
            }
        };
        change(&self.objects, &self.budget.objects, objects);
        change(&self.history, &self.budget.history, history);
        self.budget.report_pressure();
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn watch_bounds(&self) -> WatchBounds {
        self.budget.watch_bounds()
    }

    /// Limits of the cache's history.
    pub(crate) fn history_limits(&self) -> HistoryLimits {
        let own = self.history.load(Ordering::Relaxed);
        HistoryLimits {
            bytes: self.budget.ring_limit(own),
            min_bytes: self.budget.aged_limit(own),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // The share of a closed cache is available to the others.
        self.set(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_share_returns_its_bytes() {
        let budget = Budget::new(1000, 100);
        let (a, b) = (Share::new(budget.clone()), Share::new(budget.clone()));
        a.set(300, 100);
        b.set(50, 20);
        a.set(200, 150);
        assert_eq!((budget.stats().objects, budget.stats().history), (250, 170));
        drop(a);
        assert_eq!((budget.stats().objects, budget.stats().history), (50, 20));
    }

    #[test]
    fn history_shrinks_in_proportion_but_objects_do_not() {
        let budget = Budget::new(1000, 100);
        let (a, b) = (Share::new(budget.clone()), Share::new(budget.clone()));
        a.set(400, 300);
        b.set(0, 300);
        assert_eq!(
            (a.history_limits().bytes, budget.is_over()),
            (usize::MAX, false),
            "within budget"
        );
        b.set(200, 900);
        assert_eq!(
            (a.history_limits().bytes, b.history_limits().bytes),
            (100, 300),
            "400 bytes are left for 1,200 of history"
        );
        a.set(900, 100);
        assert_eq!((a.history_limits().bytes, budget.is_over()), (0, true));
    }

    #[test]
    fn encodings_shrink_down_to_the_floor() {
        let budget = Budget::new(32 << 20, 16 << 20);
        let share = Share::new(budget.clone());
        assert_eq!(budget.encodings_limit(), 16 << 20);
        share.set(20 << 20, 2 << 20);
        assert_eq!(budget.encodings_limit(), 10 << 20);
        share.set(40 << 20, 2 << 20);
        assert_eq!(budget.encodings_limit(), FLOOR);
    }
}
