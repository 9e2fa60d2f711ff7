//! Limits of one address: connections, and requests that wait for one. [`Room`] hands out a guard for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Upper limits per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections, including those that are being established.
    pub connections: usize,
    /// Requests that wait for a connection, including one that is being established.
    pub waiting: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 4096,
            waiting: 8192,
        }
    }
}

/// How long a request waits for another one to free its connection while the connection limit is reached.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Counters of what is in use at one address, and a notification when some of it is freed.
#[derive(Default)]
pub(super) struct Room {
    open: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
}

/// Guard of one connection, from before the dial to its end.
pub(super) struct Open(Arc<Room>);

/// Guard of one waiting request.
pub(super) struct Waiting(Arc<Room>);

/// Increments the counter unless it has reached `most`.
fn take(of: &AtomicUsize, most: usize) -> bool {
    let more = |n: usize| (n < most).then_some(n + 1);
    of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Room {
    /// Reserves a connection; `None` at the limit.
    pub(super) fn open(self: &Arc<Self>, most: usize) -> Option<Open> {
        take(&self.open, most).then(|| Open(self.clone()))
    }

    /// Reserves a place in the queue; `None` at the limit.
    pub(super) fn wait(self: &Arc<Self>, most: usize) -> Option<Waiting> {
        take(&self.waiting, most).then(|| Waiting(self.clone()))
    }

    /// Wakes one waiting request, if any. A single relaxed load if none waits.
    pub(super) fn free(&self) {
        if self.waiting() > 0 {
            self.freed.notify_one();
        }
    }

    /// Notified when a connection or a stream is freed.
    pub(super) fn freed(&self) -> &Notify {
        &self.freed
    }

    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.free();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
