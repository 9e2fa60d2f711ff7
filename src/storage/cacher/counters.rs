//! Statistics of one resource's watch cache, for metrics: [`CacheStats`]. The activity counters in it outlive the
//! cache: a backend that reloads a resource continues counting with the same [`Counters`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of [`Waits`], in seconds, as upstream's `watch_cache_read_wait_seconds`.
pub(crate) const WAIT_BUCKETS: [f64; 13] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];

/// Statistics of one watch cache.
#[derive(Clone, Debug)]
pub struct CacheStats {
    /// Number of objects in the current state.
    pub objects: usize,
    /// Memory footprint of those objects, in bytes.
    pub objects_bytes: u64,
    /// Memory footprint of the event history, in bytes, as counted against its bound.
    pub history_bytes: u64,
    /// Events in the history.
    pub events: usize,
    /// Events the history may currently hold.
    pub capacity: usize,
    /// Number of open watches.
    pub watchers: usize,
    /// Revision of the newest applied change.
    pub revision: u64,
    /// Counters since the process started.
    pub counters: Arc<Counters>,
}

/// A number that only grows, and starts at 0 with the process.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // Relaxed: nothing is concluded from one counter about other memory.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one resource.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of times the cache was filled.
    pub loads: Counter,
    /// Changes received from the backend.
    pub received: Counter,
    /// Changes dispatched while there were watchers.
    pub dispatched: Counter,
    /// Watches ended because their reader was too slow.
    pub terminated: Counter,
    /// Number of times the capacity of the event ring grew.
    pub grown: Counter,
    /// Number of times it shrank.
    pub shrunk: Counter,
    /// Number of lists: by scan of the prefix, by index.
    pub lists: [Counter; 2],
    /// Objects visited by those lists.
    pub fetched: [Counter; 2],
    /// Objects returned by lists.
    pub returned: Counter,
    /// Consistent reads: served by the cache, by the store as fallback, failed.
    pub consistent: [Counter; 3],
    /// Consistency checks against the store, by [`Comparison`].
    pub comparisons: [Counter; 3],
    /// Time reads waited for a revision to be applied.
    pub waits: Waits,
}

/// Outcome of a consistency check between cache and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Cache and store agree.
    Equal,
    /// Cache and store differ.
    Different,
    /// The store could not be read.
    Impossible,
}

impl Counters {
    /// Counts the outcome of a consistency check.
    pub fn compared(&self, outcome: Comparison) {
        self.comparisons[outcome as usize].add(1);
    }
}

/// Histogram of the time reads waited.
#[derive(Debug, Default)]
pub struct Waits {
    buckets: [Counter; WAIT_BUCKETS.len()],
    count: Counter,
    nanos: Counter,
}

/// A reading of [`Waits`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitHistogram {
    /// Cumulative counts: waits of at most [`WAIT_BUCKETS`]`[i]` seconds.
    pub buckets: [u64; WAIT_BUCKETS.len()],
    /// All waits, also those above the last bound.
    pub count: u64,
    /// Total duration, in seconds.
    pub seconds: f64,
}

impl Waits {
    /// Records a wait of this length.
    pub fn observe(&self, took: Duration) {
        // Waits above the last bound count only in `count`, as Prometheus' +Inf bucket.
        let at = WAIT_BUCKETS.partition_point(|bound| *bound < took.as_secs_f64());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        // Not in one step with the bucket: a reading in between lacks one wait, which evens out with the next.
        self.count.add(1);
        self.nanos.add(took.as_nanos() as u64);
    }

    /// The counts so far, cumulative as Prometheus expects them.
    pub fn read(&self) -> WaitHistogram {
        let mut below = 0;
        let buckets = std::array::from_fn(|i| {
            // Prometheus' buckets are cumulative, the counters are not.
            below += self.buckets[i].get();
            below
        });
        WaitHistogram {
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
