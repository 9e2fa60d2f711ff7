//! [`Shares`]: a limited number of places, shared so that one caller cannot take all.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A caller's maximum, as a multiple of the free places.
const MAX_SHARE_OF_FREE: usize = 3;

/// Number of counters per caller. Two callers count as one only if all of them collide.
const ROWS: usize = 3;

/// The places in use, and how many of them each caller has. A caller may have three times as many as are free:
/// a single caller leaves a quarter of the places free, two leave a seventh.
///
/// Callers are counted in a count-min sketch, so that they cannot make a table grow: each caller has a counter
/// in every row, chosen by a keyed hash, and the smallest of them bounds its number of places from above. With
/// one counter per caller, a caller whose hash collides with that of a flood would be refused with it.
pub(crate) struct Shares {
    taken: AtomicUsize,
    keys: RandomState,
    rows: [Box<[AtomicU32]>; ROWS],
}

/// A caller's counters. Each place is given back with [`Shares::leave`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller([u16; ROWS]);

impl Shares {
    /// Rows of that many counters.
    pub(crate) fn new(counters: u16) -> Self {
        let row = || (0..counters.max(1)).map(|_| AtomicU32::new(0)).collect();
        Self {
            taken: AtomicUsize::new(0),
            keys: RandomState::new(),
            rows: std::array::from_fn(|_| row()),
        }
    }

    /// Takes one of `limit` places for a caller; 0 means unlimited. `exempt` callers exceed the limit and their
    /// share, and their places count. `None` if the caller gets no place.
    pub(crate) fn enter(&self, limit: usize, caller: &str, exempt: impl FnOnce() -> bool) -> Option<Caller> {
        let caller = self.find(caller);
        // Counted before the comparison: two concurrent requests of a caller cannot both take its last share.
        let own = self.counters(caller).map(|n| n.fetch_add(1, Ordering::Relaxed)).min();
        let own = own.unwrap_or(0) as usize;
        // Counted after it: the attempts of a flood must not make the places look taken to others.
        let fits = |taken: usize| limit == 0 || own < limit.saturating_sub(taken).saturating_mul(MAX_SHARE_OF_FREE);
        // Relaxed: the counts decide about nothing but themselves.
        let taken = (self.taken).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| fits(n).then_some(n + 1));
        if taken.is_err() {
            // `exempt` may search groups, so it is evaluated only at the limit.
            if !exempt() {
                self.uncount(caller);
                return None;
            }
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        Some(caller)
    }

    /// Gives a place back.
    pub(crate) fn leave(&self, caller: Caller) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.uncount(caller);
    }

    /// Number of places in use.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn uncount(&self, caller: Caller) {
        self.counters(caller).for_each(|n| {
            n.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn counters(&self, caller: Caller) -> impl Iterator<Item = &AtomicU32> {
        self.rows.iter().zip(caller.0).map(|(row, at)| &row[usize::from(at)])
    }

    fn find(&self, caller: &str) -> Caller {
        let hash = self.keys.hash_one(caller);
        let counters = self.rows[0].len() as u64;
        // Every row uses 16 bits of its own. The remainder fits: a row has at most `u16::MAX` counters.
        Caller(std::array::from_fn(|row| {
            ((hash >> (16 * row) & 0xffff) % counters) as u16
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that shares one counter with `of`, and one that shares all.
    fn colliding(shares: &Shares, of: &str) -> (String, String) {
        let flood = shares.find(of);
        let named = |equal: usize| {
            let equals = |name: &String| {
                shares
                    .find(name)
                    .0
                    .iter()
                    .zip(flood.0)
                    .filter(|(a, b)| **a == *b)
                    .count()
            };
            (0..)
                .map(|n| format!("caller-{n}"))
                .find(|name| equals(name) == equal)
                .unwrap()
        };
        (named(ROWS - 1), named(ROWS))
    }

    #[test]
    fn a_caller_is_refused_with_a_flood_only_if_all_its_counters_collide() {
        let shares = Shares::new(4);
        let (some, all) = colliding(&shares, "flood");
        let flood: Vec<Caller> = std::iter::from_fn(|| shares.enter(40, "flood", || false)).collect();
        assert_eq!((flood.len(), shares.taken()), (30, 30));
        assert!(shares.enter(40, &all, || false).is_none());
        let place = shares.enter(40, &some, || false).unwrap();
        shares.leave(place);
        flood.into_iter().for_each(|place| shares.leave(place));
        assert_eq!(shares.taken(), 0);
        let counters = shares.rows.iter().flatten();
        assert!(counters.into_iter().all(|n| n.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn exempt_callers_exceed_the_limit_and_count() {
        let shares = Shares::new(4);
        let exempt = [(); 3].map(|()| shares.enter(2, "admin", || true).unwrap());
        assert_eq!(shares.taken(), 3);
        assert!(shares.enter(2, "jane", || false).is_none());
        exempt.into_iter().for_each(|place| shares.leave(place));
        assert!(shares.enter(2, "jane", || false).is_some());
    }

    #[test]
    fn refused_attempts_take_no_place() {
        let shares = Shares::new(64);
        // 3 of 4 places: the fourth is for others, however often the caller tries.
        let held: Vec<Caller> = std::iter::from_fn(|| shares.enter(4, "flood", || false)).collect();
        assert_eq!(held.len(), 3);
        std::thread::scope(|scope| {
            let trying = scope.spawn(|| {
                (0..20_000)
                    .filter(|_| shares.enter(4, "flood", || false).is_some())
                    .count()
            });
            // The two names share all counters once in 262,144 runs.
            while !trying.is_finished() {
                let place = shares.enter(4, "quiet", || false).expect("a flood of refused attempts");
                shares.leave(place);
            }
            assert_eq!(trying.join().unwrap(), 0);
        });
    }
}
