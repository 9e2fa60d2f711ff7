//! Counter of the requests that the shutdown waits for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The requests in flight. Clones share the counter.
#[derive(Clone)]
pub(crate) struct WaitGroup(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: AtomicUsize,
    draining: AtomicBool,
    ended: Notify,
}

/// Guard of a request in flight.
pub(crate) struct InFlight(Arc<Inner>);

impl WaitGroup {
    /// A group without requests.
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Counts a request. `None` once draining has begun.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        // Incremented before the check; otherwise `wait_empty` could see zero while a request gets past the
        // check.
        self.0.count.fetch_add(1, Ordering::SeqCst);
        let guard = InFlight(self.0.clone());
        (!self.0.draining.load(Ordering::SeqCst)).then_some(guard)
    }

    /// Counts a request even while draining. For health checks and metrics.
    pub(crate) fn enter_always(&self) -> InFlight {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        InFlight(self.0.clone())
    }

    /// Makes [`Self::enter`] reject from now on.
    pub(crate) fn start_draining(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
    }

    /// The number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// True if no request is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until no request is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wait_empty(&self) {
        loop {
            // Created before the check, so that a notification between check and await is not lost.
            let ended = self.0.ended.notified();
            if self.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Sequentially consistent, like `start_draining` and the check in `wait_empty`: one of the two sides sees the
        // other, so the last request to end either notifies or is seen to have ended.
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.draining.load(Ordering::SeqCst) {
            self.0.ended.notify_waiters();
        }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitGroup({})", self.len())
    }
}
