//! [`Shares`]: a limited number of places, shared so that one caller cannot take all.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A caller's maximum, as a multiple of the free places.
const MAX_SHARE_OF_FREE: usize = 3;

/// The places that each caller has. A caller may have three times as many as are free: a single caller leaves
/// a quarter of the places free, two leave a seventh.
pub(crate) struct Shares {
    keys: RandomState,
    /// By hash of the caller. Callers whose hashes collide have one caller's share. Fixed, so that callers
    /// cannot make the table grow.
    callers: Box<[AtomicUsize]>,
}

/// Where a caller is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(usize);

impl Shares {
    /// Distinguishes that many callers.
    pub(crate) fn new(callers: usize) -> Self {
        Self {
            keys: RandomState::new(),
            callers: (0..callers).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Counts a place of a caller, and whether it may have it when `free` places are left. To be undone by
    /// [`leave`](Self::leave) in either case.
    pub(crate) fn enter(&self, caller: &str, free: usize) -> (Caller, bool) {
        let at = self.keys.hash_one(caller) as usize % self.callers.len();
        // Counted before the comparison: two concurrent requests cannot both take the last share.
        let own = self.callers[at].fetch_add(1, Ordering::Relaxed);
        // Relaxed: the counts decide about nothing but themselves.
        (Caller(at), own < free.saturating_mul(MAX_SHARE_OF_FREE))
    }

    /// Gives a place back.
    pub(crate) fn leave(&self, caller: Caller) {
        self.callers[caller.0].fetch_sub(1, Ordering::Relaxed);
    }
}
