//! What one resource's cache has done so far, for metrics. It outlives the cache: a backend that reads a resource anew
//! goes on counting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds, in seconds, of the buckets of [`Waits`]; upstream's.
pub const WAIT_BUCKETS: [f64; 13] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one resource.
#[derive(Debug, Default)]
pub struct Counters {
    /// Times a cache was filled.
    pub loads: Counter,
    /// Changes that came in.
    pub received: Counter,
    /// Changes that went out to whoever watched.
    pub dispatched: Counter,
    /// Watches ended because their reader was too slow.
    pub terminated: Counter,
    /// Times the ring of events was given more room.
    pub grown: Counter,
    /// Times it was given less.
    pub shrunk: Counter,
    /// Lists: looking at everything in scope, and by the index.
    pub lists: [Counter; 2],
    /// Objects those looked at.
    pub fetched: [Counter; 2],
    /// Objects they returned.
    pub returned: Counter,
    /// Reads of the latest state: answered by the cache, by the store instead, and by neither.
    pub consistent: [Counter; 3],
    /// Comparisons with the store: equal, different, not possible.
    pub comparisons: [Counter; 3],
    /// Waits for a revision that was yet to come.
    pub waits: Waits,
}

/// What came of a comparison of cache and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// They agree.
    Equal,
    /// They do not.
    Different,
    /// The store could not be read.
    Impossible,
}

impl Counters {
    /// Counts a comparison.
    pub fn compared(&self, outcome: Comparison) {
        self.comparisons[outcome as usize].add(1);
    }
}

/// How long reads have waited.
#[derive(Debug, Default)]
pub struct Waits {
    buckets: [Counter; WAIT_BUCKETS.len()],
    count: Counter,
    nanos: Counter,
}

/// A reading of [`Waits`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitFigures {
    /// Waits of at most [`WAIT_BUCKETS`]`[i]`, cumulative.
    pub buckets: [u64; WAIT_BUCKETS.len()],
    /// All of them.
    pub count: u64,
    /// Their sum, in seconds.
    pub seconds: f64,
}

impl Waits {
    /// Counts one.
    pub fn observe(&self, took: Duration) {
        let at = WAIT_BUCKETS.partition_point(|bound| *bound < took.as_secs_f64());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.count.add(1);
        self.nanos.add(took.as_nanos() as u64);
    }

    /// What was counted.
    pub fn read(&self) -> WaitFigures {
        let mut below = 0;
        let buckets = std::array::from_fn(|i| {
            below += self.buckets[i].get();
            below
        });
        WaitFigures {
            buckets,
            count: self.count.get(),
            seconds: Duration::from_nanos(self.nanos.get()).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_cumulative_buckets() {
        let waits = Waits::default();
        for ms in [5, 30, 30, 9000] {
            waits.observe(Duration::from_millis(ms));
        }
        let read = waits.read();
        assert_eq!((read.buckets[0], read.buckets[1], read.buckets[2]), (1, 1, 3));
        assert_eq!((read.buckets[12], read.count), (3, 4));
        assert!((read.seconds - 9.065).abs() < 1e-9);
    }
}
