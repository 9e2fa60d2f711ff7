//! How far a backend has come: one per backend where revisions are store-wide, so that a resource without writes of its
//! own is still known to be current.

use crate::storage::{Error, Revision};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How long a read waits for a revision that is not there yet; upstream's fixed limit.
pub const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The revisions every cacher of a backend has reached.
#[derive(Debug)]
pub struct Progress {
    applied: AtomicU64,
    dispatched: AtomicU64,
    changed: watch::Sender<u64>,
    patience: Duration,
}

impl Progress {
    /// Starts at `revision`. `patience`: how long a read waits; [`FRESHNESS_WAIT`] outside tests.
    pub fn new(revision: Revision, patience: Duration) -> Self {
        Self {
            applied: AtomicU64::new(revision.0),
            dispatched: AtomicU64::new(revision.0),
            changed: watch::Sender::new(revision.0),
            patience,
        }
    }

    /// Every event up to here is in the snapshots.
    pub fn applied(&self) -> Revision {
        Revision(self.applied.load(Ordering::Acquire))
    }

    /// Every event up to here is in the queues of the watchers it concerns.
    pub fn dispatched(&self) -> Revision {
        Revision(self.dispatched.load(Ordering::Acquire))
    }

    /// Says that all cachers have applied everything up to `revision`. Never goes back.
    pub fn set_applied(&self, revision: Revision) {
        self.applied.fetch_max(revision.0, Ordering::AcqRel);
        self.changed.send_if_modified(|r| {
            let newer = revision.0 > *r;
            *r = (*r).max(revision.0);
            newer
        });
    }

    /// Says that all cachers have dispatched everything up to `revision`. Never goes back.
    pub fn set_dispatched(&self, revision: Revision) {
        self.dispatched.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// Waits until `asked` is applied.
    ///
    /// # Errors
    /// [`Error::TooNew`] after the patience.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_for(&self, asked: Revision) -> Result<(), Error> {
        if self.applied() >= asked {
            return Ok(());
        }
        let mut changed = self.changed.subscribe();
        let reached = tokio::time::timeout(self.patience, changed.wait_for(|r| *r >= asked.0)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            // The sender lives in self, so only the time can have run out.
            _ => Err(Error::TooNew {
                asked,
                current: self.applied(),
            }),
        }
    }
}
