//! Counts the requests that shutdown waits for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Requests in flight. Clones are the same group.
#[derive(Clone)]
pub struct WaitGroup(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: AtomicUsize,
    draining: AtomicBool,
    ended: Notify,
}

/// One request in flight; dropping it ends it.
pub struct InFlight(Arc<Inner>);

impl WaitGroup {
    /// Nothing in flight.
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Counts a request in; `None` once draining has begun.
    pub fn enter(&self) -> Option<InFlight> {
        // Counted before the look, so that `wait_empty` cannot see zero while a request slips in.
        self.0.count.fetch_add(1, Ordering::SeqCst);
        let guard = InFlight(self.0.clone());
        (!self.0.draining.load(Ordering::SeqCst)).then_some(guard)
    }

    /// Counts a request in even while draining: health checks and metrics.
    pub fn enter_always(&self) -> InFlight {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        InFlight(self.0.clone())
    }

    /// From now on [`Self::enter`] refuses.
    pub fn start_draining(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
    }

    /// How many are in flight.
    pub fn len(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until none is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_empty(&self) {
        loop {
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
