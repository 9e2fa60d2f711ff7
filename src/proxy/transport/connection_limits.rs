//! Limits of one address: connections, and requests that wait for one. [`ConnectionLimiter`] hands out a
//! guard for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Upper limits per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Connections, including those that are being established.
    pub connections: usize,
    /// Requests that wait for a connection, including one that is being established.
    pub waiting: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            waiting: 8192,
        }
    }
}

/// How long a request waits for another one to free its connection while the connection limit is reached.
pub(super) const MAX_CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// Counters of the connections and streams in use at one address, and a notification when some are released.
///
/// A waiting request counts itself, then looks for something free; whoever frees something uncounts it, then
/// looks for waiting requests. Both accesses of both sides are `SeqCst`: with weaker ones the second could take
/// effect before the first, so that neither side sees the other and the wake-up is lost.
#[derive(Default)]
pub(super) struct ConnectionLimiter {
    open: AtomicUsize,
    waiting: AtomicUsize,
    freed: Notify,
}

/// Guard of one connection, from before the dial to its end.
pub(super) struct ConnectionPermit(Arc<ConnectionLimiter>);

/// Guard of one waiting request.
pub(super) struct WaitPermit(Arc<ConnectionLimiter>);

/// Increments the counter unless it has reached `most`.
fn take(of: &AtomicUsize, most: usize) -> bool {
    // Checked and counted in one step: two callers cannot both take the last place.
    let more = |n: usize| (n < most).then_some(n + 1);
    of.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
}

impl ConnectionLimiter {
    /// Reserves a connection; `None` at the limit.
    pub(super) fn open(self: &Arc<Self>, most: usize) -> Option<ConnectionPermit> {
        take(&self.open, most).then(|| ConnectionPermit(self.clone()))
    }

    /// Admits a waiting request; `None` at the limit.
    pub(super) fn wait(self: &Arc<Self>, most: usize) -> Option<WaitPermit> {
        take(&self.waiting, most).then(|| WaitPermit(self.clone()))
    }

    /// Wakes one waiting request, if any. A single load if none waits.
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
        self.waiting.load(Ordering::SeqCst)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        // After the decrement, so that the woken request finds the place.
        self.0.free();
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        // Weaker than the increment: a late decrement causes a needless notification, never a lost one.
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
