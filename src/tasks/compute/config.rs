//! [`Config`]: size and limits of the pool. `queue` and the counts in the pool's state enforce them.

use std::time::Duration;

/// Size and limits of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Number of threads. At least two, so that one long job cannot block the pool.
    pub threads: usize,
    /// Maximum number of unfinished jobs; more are refused.
    pub jobs: usize,
    /// Maximum number of unfinished jobs per flow.
    pub jobs_per_flow: usize,
    /// Total memory in bytes of started jobs, as estimated by their callers.
    pub memory_bytes: usize,
    /// Total bytes of request bodies that wait for a job or are being processed; small bodies do not count.
    pub body_bytes: usize,
    /// The same per flow.
    pub body_bytes_per_flow: usize,
    /// Maximum CPU time of one poll. When it is exceeded, the job is stopped at its next checkpoint.
    pub longest_poll: Duration,
    /// Called by a thread of the pool that has had nothing to do for a second after its last job. `main`
    /// returns the allocator's free memory to the system there: the allocator itself does so only on later
    /// allocations.
    pub on_idle: Option<fn()>,
}

impl Default for Config {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            threads: cores.clamp(2, 32),
            jobs: 4096,
            jobs_per_flow: 1024,
            memory_bytes: 48 << 20,
            body_bytes: 256 << 20,
            body_bytes_per_flow: 64 << 20,
            // A debug build is about twenty times slower than a release build.
            longest_poll: Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 3 }),
            on_idle: None,
        }
    }
}
