//! [`Permit`]: the place of a request in its level, from its arrival to its end.

use super::{Level, TooMany};
use crate::flowcontrol::max_in_flight::RequestClass;
use crate::flowcontrol::queueset::Id;
use crate::flowcontrol::read_write::Phase;
use crate::tasks::compute::RunnableJobs;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A place in the level: in a queue or among its executing requests. Dropping it gives the place up.
pub struct Permit {
    pub(super) level: Arc<Level>,
    pub(super) id: Id,
    pub(super) class: RequestClass,
    pub(super) waiting: bool,
    /// `None` while it waits, so that ten thousand waiting requests need no counts.
    pub(super) runnable: Option<RunnableJobs>,
}

impl Permit {
    /// True if the request had to wait when it began.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// The name of the level.
    #[cfg(test)]
    pub(crate) fn level_name(&self) -> &Arc<str> {
        &self.level.name
    }

    /// The count of the request's jobs on the compute pool. It keeps its seats while there are any. `None`
    /// while it waits.
    pub(crate) fn runnable_jobs(&self) -> Option<RunnableJobs> {
        self.runnable.clone()
    }

    /// Waits until the request may run.
    ///
    /// # Cancel safety
    /// Cancel safe. Dropping the permit leaves the queue.
    pub fn dispatched(&mut self) -> Dispatched<'_> {
        Dispatched(self)
    }

    /// The `Retry-After` of a request that gives up waiting.
    pub fn give_up(self) -> TooMany {
        // Dropped first: the drop leaves the queue and counts the rejection, under the same lock as below.
        let level = self.level.clone();
        drop(self);
        let now = level.shared.clock.now();
        let retry_after = level.lock().retry_after.rejected(now.as_secs());
        TooMany { retry_after }
    }
}

/// See [`Permit::dispatched`].
pub struct Dispatched<'a>(&'a mut Permit);

impl Future for Dispatched<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let permit = &mut *self.0;
        if permit.waiting {
            let mut state = permit.level.lock();
            // The set's state decides, not whether the waker was called: wake-ups may be spurious.
            if state.set.is_waiting(permit.id) {
                let waker = &mut state.set.item_mut(permit.id).waker;
                match waker {
                    // `clone_from` skips the clone if both wake the same task.
                    Some(old) => old.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
            permit.runnable = Some(state.set.item_mut(permit.id).count_jobs());
            permit.waiting = false;
        }
        Poll::Ready(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let level = &*self.level;
        let now = level.shared.clock.now();
        let mut guard = level.state.lock();
        let state = &mut *guard;
        // Before `finish`, which frees the slot.
        let times = state.set.times(self.id);
        let waiting = state.set.is_waiting(self.id);
        // Dropped at the end of this function, after the lock is released.
        let request = state.set.finish(now, self.id);
        let series = &state.schemas[times.account as usize];
        if waiting {
            series.waited(now.saturating_sub(times.arrived), false);
            series.rejected("time-out");
        } else {
            series.executed(now.saturating_sub(times.started), request.info.verb == "watch");
        }
        let phase = if waiting { Phase::Waiting } else { Phase::Executing };
        level.shared.by_kind.leave(now, self.class, phase);
        level.unlock_and_wake(guard, now);
    }
}
