//! [`Progress`]: the revision up to which a backend's caches are current. Shared by all caches of a backend
//! with store-wide revisions, so that a resource without writes of its own still counts as current.

use crate::storage::{Error, Revision};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How long a read waits for a future revision; upstream's `blockTimeout` in
/// `pkg/storage/cacher/watch_cache.go`.
pub(crate) const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The revisions that every cacher of a backend has reached.
#[derive(Debug)]
pub struct Progress {
    applied: AtomicU64,
    dispatched: AtomicU64,
    changed: watch::Sender<u64>,
    freshness_wait: Duration,
}

impl Progress {
    /// Starts at `revision`. `freshness_wait` limits how long a read waits; [`FRESHNESS_WAIT`] outside tests.
    pub fn new(revision: Revision, freshness_wait: Duration) -> Self {
        Self {
            applied: AtomicU64::new(revision.0),
            dispatched: AtomicU64::new(revision.0),
            changed: watch::Sender::new(revision.0),
            freshness_wait,
        }
    }

    /// All events up to this revision are visible in the snapshots.
    pub fn applied(&self) -> Revision {
        Revision(self.applied.load(Ordering::Acquire))
    }

    /// All events up to this revision are in the queues of the watchers they concern.
    pub fn dispatched(&self) -> Revision {
        Revision(self.dispatched.load(Ordering::Acquire))
    }

    /// Records that all cachers have applied everything up to `revision`. Never moves backwards.
    pub fn set_applied(&self, revision: Revision) {
        // Release, with the acquire in `applied`: whoever reads the revision also sees the snapshots stored
        // before it.
        self.applied.fetch_max(revision.0, Ordering::AcqRel);
        // Readers that lag see only the newest value, which is all they need; no queue can fill up.
        self.changed.send_if_modified(|r| {
            let newer = revision.0 > *r;
            *r = (*r).max(revision.0);
            newer
        });
    }

    /// Records that all cachers have dispatched everything up to `revision`. Never moves backwards.
    pub fn set_dispatched(&self, revision: Revision) {
        self.dispatched.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// Waits until `requested` has been applied.
    ///
    /// # Errors
    /// [`Error::TooNew`] after the configured wait.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_for(&self, requested: Revision) -> Result<(), Error> {
        // The common case subscribes to nothing and allocates nothing.
        if self.applied() >= requested {
            return Ok(());
        }
        let mut changed = self.changed.subscribe();
        // `wait_for` looks at the current value first, so a change between the check above and the
        // subscription is not missed.
        let reached = tokio::time::timeout(self.freshness_wait, changed.wait_for(|r| *r >= requested.0)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            // `self` owns the sender, so the channel cannot be closed: only the timeout remains.
            _ => Err(Error::TooNew {
                requested,
                current: self.applied(),
            }),
        }
    }
}
