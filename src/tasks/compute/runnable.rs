//! [`RunnableJobs`]: whether a request waits for the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of jobs of one request that wait for a thread of the pool or run on one. Jobs that wait for storage, a client or
/// another server do not count. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunnableJobs(Arc<AtomicU32>);

impl RunnableJobs {
    /// True if the pool owes the request work.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
