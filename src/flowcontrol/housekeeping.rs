//! [`Housekeeping`]: wakes the controller's task when a level needs it before the next adjustment of limits,
//! because seats become free by themselves while requests wait. The task itself is
//! [`FlowController::run`](super::FlowController::run).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Shared by the levels and the task.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    /// The next time the task wakes up without being notified, in nanoseconds of the clock.
    wakes_at: AtomicU64,
    sooner: Notify,
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

impl Housekeeping {
    /// A level needs the task at that time.
    pub(crate) fn needed_at(&self, at: Option<Duration>) {
        // Called under the level's lock. The task stores before it reads the level under the same lock, so either
        // this load sees the task's store, or the task sees this level's event.
        if at.is_some_and(|at| nanos(at) < self.wakes_at.load(Ordering::Acquire)) {
            // Stores a permit if the task is not waiting yet, so the notification cannot be lost.
            self.sooner.notify_one();
        }
    }

    /// Begins to look for the next event. Until [`sleeping_until`](Self::sleeping_until), every request of a
    /// level is remembered, so none is lost in between.
    pub(crate) fn looking(&self) {
        self.wakes_at.store(u64::MAX, Ordering::Release);
    }

    /// The task is about to sleep.
    pub(crate) fn sleeping_until(&self, at: Duration) {
        self.wakes_at.store(nanos(at), Ordering::Release);
    }

    /// Waits until a level needs the task sooner.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn needed_sooner(&self) {
        self.sooner.notified().await;
    }
}
