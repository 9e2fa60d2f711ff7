//! Counters of the engine, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the commit latency buckets, in seconds.
pub(crate) const COMMIT_BUCKETS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5,
];

/// A reading of the engine's counters.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The newest committed revision.
    pub revision: u64,
    /// Objects per resource, by key prefix.
    pub objects: Vec<(String, usize)>,
    /// Open watches per resource, by key prefix.
    pub watchers: Vec<(String, usize)>,
    /// Consistency checks of each resource's cache, by key prefix: equal, different, not possible.
    pub comparisons: Vec<(String, [u64; 3])>,
    /// Watches ended because their reader was too slow.
    pub terminated_watchers: u64,
    /// Size of the database file and its write-ahead log, in bytes.
    pub db_bytes: u64,
    /// Number of committed transactions.
    pub commits: u64,
    /// Number of writes in those transactions.
    pub writes: u64,
    /// Total duration of the transactions, in seconds.
    pub commit_seconds: f64,
    /// Transactions that took at most [`COMMIT_BUCKETS`]`[i]` seconds, not cumulative; the last element
    /// counts slower ones.
    pub commit_buckets: [u64; COMMIT_BUCKETS.len() + 1],
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    writes: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; COMMIT_BUCKETS.len() + 1],
}

impl Counters {
    pub(crate) fn committed(&self, writes: usize, took: Duration) {
        // Relaxed: each counter is read on its own, and a scrape between two of them is off by one commit at
        // most.
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = COMMIT_BUCKETS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_into(&self, stats: &mut Stats) {
        stats.commits = self.commits.load(Ordering::Relaxed);
        stats.writes = self.writes.load(Ordering::Relaxed);
        stats.commit_seconds = Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64();
        stats.commit_buckets = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
    }
}
