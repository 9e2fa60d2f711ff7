//! How much memory the watch caches of a gateway may take together, and who gives way.
//!
//! | part | bound | when all of it is too much |
//! |---|---|---|
//! | second encodings | a limit of their own | go first, down to [`FLOOR`] |
//! | history | each ring's bounds | rings shrink in proportion, down to their minimum number of events |
//! | present objects | what is stored | cannot go: served on, and said ([`Budget::is_over`]) |
//!
//! One [`Budget`] per gateway, shared by all backends; a cache has a [`Share`] of it, which gives everything back when it
//! is dropped.

mod watches;

pub use watches::{Held, TooMany, WatchBounds, WatchPlace};

use super::forms::Shelf;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of second encodings that are always kept: a frame for many watchers is made once even then. The largest object
/// fits.
pub const FLOOR: usize = 4 << 20;
/// Bytes of second encodings where nothing is said.
pub const ENCODINGS: usize = 64 << 20;

/// The bytes of all watch caches.
pub struct Budget {
    total: usize,
    encodings: usize,
    objects: AtomicUsize,
    history: AtomicUsize,
    over: AtomicBool,
    pub(super) shelf: Shelf,
    watches: Arc<watches::Places>,
}

/// A reading of a budget. Bytes, and counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// What all may take.
    pub total: usize,
    /// Present objects.
    pub objects: usize,
    /// Events and past states.
    pub history: usize,
    /// Second encodings.
    pub encodings: usize,
    /// What those may take now.
    pub encodings_limit: usize,
    /// Encodings that were made.
    pub made: u64,
    /// Uses of one that was there.
    pub reused: u64,
    /// Encodings given up for others.
    pub evicted: u64,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl Budget {
    /// `total` bytes for everything, of which second encodings may take `encodings`.
    pub fn new(total: usize, encodings: usize) -> Arc<Self> {
        Self::bounded(total, encodings, WatchBounds::default())
    }

    /// The same, with bounds on what watches may keep.
    pub fn bounded(total: usize, encodings: usize, watches: WatchBounds) -> Arc<Self> {
        Arc::new(Self {
            watches: watches::Places::new(watches),
            total,
            encodings,
            objects: AtomicUsize::new(0),
            history: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            shelf: Shelf::default(),
        })
    }

    /// No limit but that of second encodings.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX, ENCODINGS)
    }

    /// What is taken now, and what was done.
    pub fn read(&self) -> Use {
        let (made, reused, evicted) = self.shelf.counts();
        Use {
            total: self.total,
            objects: self.objects.load(Ordering::Relaxed),
            history: self.history.load(Ordering::Relaxed),
            encodings: self.shelf.bytes(),
            encodings_limit: self.encodings_limit(),
            made,
            reused,
            evicted,
        }
    }

    /// What watches may keep.
    pub fn watch_bounds(&self) -> WatchBounds {
        self.watches.bounds
    }

    /// A place for a watch of this user; `exempt` users are only counted.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn admit_watch(&self, user: &str, exempt: bool) -> Result<WatchPlace, TooMany> {
        self.watches.admit(user, exempt)
    }

    /// True where the present objects alone are more than all may take: then nothing is left that could go.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Says when that begins and, a twentieth below, ends.
    fn look(&self) {
        let objects = self.objects.load(Ordering::Relaxed);
        let was = self.is_over();
        let over = objects > if was { self.total - self.total / 20 } else { self.total };
        if over == was || self.over.swap(over, Ordering::Relaxed) == over {
            return;
        }
        if over {
            tracing::warn!(
                objects,
                limit = self.total,
                "the stored objects need more memory than the watch caches may take (--watch-cache-max-bytes): they \
                 are served; history and second encodings are kept at their least"
            );
        } else {
            tracing::info!(
                objects,
                limit = self.total,
                "the watch caches are within their memory again"
            );
        }
    }

    /// Bytes that second encodings may take now.
    pub fn encodings_limit(&self) -> usize {
        let others = self.objects.load(Ordering::Relaxed) + self.history.load(Ordering::Relaxed);
        self.encodings.min(self.total.saturating_sub(others).max(FLOOR))
    }

    /// Bytes that a ring of `own` bytes may keep beyond its minimum, so that all rings together fit.
    fn ring_limit(&self, own: usize) -> usize {
        let room = self.total.saturating_sub(self.objects.load(Ordering::Relaxed));
        let all = self.history.load(Ordering::Relaxed);
        if all <= room {
            return usize::MAX;
        }
        (own as u128 * room as u128 / all as u128) as usize
    }
}

/// What one cache takes of a budget.
pub struct Share {
    budget: Arc<Budget>,
    objects: AtomicUsize,
    history: AtomicUsize,
}

impl Share {
    /// Nothing yet.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            objects: AtomicUsize::new(0),
            history: AtomicUsize::new(0),
        }
    }

    /// Whose share it is.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Says what the cache takes now. One caller at a time.
    pub fn set(&self, objects: usize, history: usize) {
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
        self.budget.look();
    }

    /// What watches may keep.
    pub fn watch_bounds(&self) -> WatchBounds {
        self.budget.watch_bounds()
    }

    /// Bytes its history may keep beyond the minimum number of events.
    pub fn history_limit(&self) -> usize {
        self.budget.ring_limit(self.history.load(Ordering::Relaxed))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_back_when_it_is_dropped() {
        let budget = Budget::new(1000, 100);
        let (a, b) = (Share::new(budget.clone()), Share::new(budget.clone()));
        a.set(300, 100);
        b.set(50, 20);
        a.set(200, 150);
        assert_eq!((budget.read().objects, budget.read().history), (250, 170));
        drop(a);
        assert_eq!((budget.read().objects, budget.read().history), (50, 20));
    }

    #[test]
    fn rings_shrink_in_proportion_and_objects_never() {
        let budget = Budget::new(1000, 100);
        let (a, b) = (Share::new(budget.clone()), Share::new(budget.clone()));
        a.set(400, 300);
        b.set(0, 300);
        assert_eq!((a.history_limit(), budget.is_over()), (usize::MAX, false), "it fits");
        b.set(200, 900);
        assert_eq!(
            (a.history_limit(), b.history_limit()),
            (100, 300),
            "400 are left for 1,200"
        );
        a.set(900, 100);
        assert_eq!((a.history_limit(), budget.is_over()), (0, true));
    }

    #[test]
    fn encodings_give_way_to_objects_down_to_a_floor() {
        let budget = Budget::new(32 << 20, 16 << 20);
        let share = Share::new(budget.clone());
        assert_eq!(budget.encodings_limit(), 16 << 20);
        share.set(20 << 20, 2 << 20);
        assert_eq!(budget.encodings_limit(), 10 << 20);
        share.set(40 << 20, 2 << 20);
        assert_eq!(budget.encodings_limit(), FLOOR);
    }
}
