//! Wake-up bookkeeping for a task that polls many futures itself: records which of them were woken.
//!
//! The connection and each of its streams have their own waker. Waking one adds it to the list in
//! [`WakeList`], and wakes the task if it is asleep. During a round no wake-up is needed, because the round
//! ends by checking the list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use crate::sync::{Mutex, MutexGuard};

/// The list of woken streams, and whether the connection itself was woken.
#[derive(Debug, Default)]
pub(super) struct WakeList(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    connection: bool,
    streams: Vec<usize>,
    /// The task's waker while the task is asleep.
    task: Option<Waker>,
}

/// Wakes the connection itself, because bytes have arrived or frames are to be written.
struct ConnectionWaker(Arc<WakeList>);

/// Wakes the stream in one slot.
pub(super) struct StreamWaker {
    wake_list: Arc<WakeList>,
    slot: usize,
    /// True while the slot is on the list; avoids duplicates.
    listed: AtomicBool,
}

// === impl WakeList ===

impl WakeList {
    /// The waker of the connection.
    pub(super) fn connection(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(ConnectionWaker(self.clone())))
    }

    /// The waker of the stream in a slot.
    pub(super) fn stream(self: &Arc<Self>, slot: usize) -> Arc<StreamWaker> {
        Arc::new(StreamWaker {
            wake_list: self.clone(),
            slot,
            listed: AtomicBool::new(false),
        })
    }

    /// Begins a round: moves the woken streams to `woken`, behind those left over from the previous round.
    pub(super) fn begin(&self, woken: &mut Vec<usize>) {
        let mut list = self.lock();
        // From here on wake-ups only add to the list: the task is running.
        list.task = None;
        if woken.is_empty() {
            // Swapped, so that both vectors keep their capacity.
            std::mem::swap(&mut list.streams, woken);
        } else {
            woken.append(&mut list.streams);
        }
    }

    /// Returns whether the connection was woken, and clears the flag.
    pub(super) fn take_connection(&self) -> bool {
        std::mem::take(&mut self.lock().connection)
    }

    /// Ends a round. The task goes to sleep, or yields and runs again if streams are left over or something
    /// was woken meanwhile.
    pub(super) fn end(&self, cx: &Context<'_>, has_left: bool) {
        // Under one lock: a wake-up is either found here, or finds the task's waker.
        let mut list = self.lock();
        if has_left || list.connection || !list.streams.is_empty() {
            // Unlocked first: what a waker runs may come back to this list.
            drop(list);
            cx.waker().wake_by_ref();
        } else {
            list.task = Some(cx.waker().clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock()
    }
}

// === impl ConnectionWaker ===

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut list = self.0.lock();
        list.connection = true;
        let task = list.task.take();
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }
}

// === impl StreamWaker ===

impl StreamWaker {
    /// Called before the stream is polled: later wake-ups list it again, and the poll observes the effects of
    /// earlier ones.
    pub(super) fn unlist(&self) {
        // A swap, since a plain store could not acquire what the waking thread has written.
        self.listed.swap(false, Ordering::AcqRel);
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut list = self.wake_list.lock();
        list.streams.push(self.slot);
        let task = list.task.take();
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_a_sleeping_task_once_and_a_running_one_at_its_end() {
        let (wake_list, task) = (Arc::<WakeList>::default(), Arc::<Task>::default());
        let (waker, woken) = (Waker::from(task.clone()), &mut Vec::new());
        let cx = &Context::from_waker(&waker);
        let woken_so_far = || task.0.load(Ordering::Relaxed);
        let (first, second) = (wake_list.stream(0), wake_list.stream(1));
        wake_list.begin(woken);
        first.wake_by_ref();
        assert_eq!(woken_so_far(), 0, "the task is running");
        wake_list.end(cx, false);
        assert_eq!(woken_so_far(), 1, "it runs again");

        wake_list.begin(woken);
        assert_eq!(std::mem::take(woken), [0]);
        first.unlist();
        wake_list.end(cx, false);
        assert_eq!(woken_so_far(), 1, "it is asleep");
        second.wake_by_ref();
        second.wake_by_ref();
        first.wake_by_ref();
        wake_list.connection().wake();
        assert_eq!(woken_so_far(), 2);
        wake_list.begin(woken);
        assert_eq!(std::mem::take(woken), [1, 0]);
        assert!(wake_list.take_connection() && !wake_list.take_connection());
        wake_list.end(cx, true);
        assert_eq!(woken_so_far(), 3, "streams are left");
        first.unlist();
        woken.push(7);
        first.wake_by_ref();
        wake_list.begin(woken);
        assert_eq!(*woken, [7, 0], "left-over streams come first");
    }
}
