//! [`RunnableJobs`]: whether a request waits for the pool, or for its caller to read earlier responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of jobs of one request that wait for a thread of the pool or run on one, and of those that wait until the
/// caller has read earlier responses. Jobs that wait for storage, a client or another server do not count. Clones share
/// the numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunnableJobs(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    runnable: AtomicU32,
    held_back: AtomicU32,
}

impl RunnableJobs {
    /// True if the pool owes the request work.
    pub(crate) fn any(&self) -> bool {
        self.0.runnable.load(Ordering::Relaxed) > 0
    }

    /// True if a job waits because its caller has not read other responses.
    pub(crate) fn held_back(&self) -> bool {
        self.0.held_back.load(Ordering::Relaxed) > 0
    }

    pub(super) fn increment(&self) {
        self.0.runnable.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decrement(&self) {
        self.0.runnable.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a job as held back until the result is dropped.
    pub(super) fn hold_back(&self) -> HeldBack {
        self.0.held_back.fetch_add(1, Ordering::Relaxed);
        HeldBack(self.clone())
    }
}

/// See [`RunnableJobs::hold_back`].
pub(super) struct HeldBack(RunnableJobs);

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.0.held_back.fetch_sub(1, Ordering::Relaxed);
    }
}
