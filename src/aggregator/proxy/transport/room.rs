//! How much there may be of one address: connections, and requests that wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Most of each at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections, those being made included.
    pub connections: usize,
    /// Requests that wait for a connection, also for one that is being made.
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

/// How long a request waits for somebody else's connection where there may be no more of them.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What is taken of one address, and a bell for those who wait.
#[derive(Default)]
pub(super) struct Room {
    open: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
}

/// A connection's place, from before it is made to its end.
pub(super) struct Open(Arc<Room>);

/// A waiting request's place.
pub(super) struct Waiting(Arc<Room>);

fn take(of: &AtomicUsize, most: usize) -> bool {
    let more = |n: usize| (n < most).then_some(n + 1);
    of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Room {
    /// A place for one more connection.
    pub(super) fn open(self: &Arc<Self>, most: usize) -> Option<Open> {
        take(&self.open, most).then(|| Open(self.clone()))
    }

    /// A place in the queue.
    pub(super) fn wait(self: &Arc<Self>, most: usize) -> Option<Waiting> {
        take(&self.waiting, most).then(|| Waiting(self.clone()))
    }

    /// Something became free. Cheap where nobody waits.
    pub(super) fn free(&self) {
        if self.waiting() > 0 {
            self.freed.notify_one();
        }
    }

    /// Rings when something is free.
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
