//! [`WorkQueue`]: the work queue of controllers, after client-go's `util/workqueue`. An item is queued at
//! most once, is never processed twice concurrently, and is retried with backoff when it fails.
//!
//! The length is bounded by the number of distinct items, which is the number of objects the controller
//! watches.

use super::Backoff;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::QueueMetrics;
use futures_util::FutureExt as _;
use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A deduplicating queue. Clones refer to the same queue.
pub(crate) struct WorkQueue<T>(Arc<Inner<T>>);

struct Inner<T> {
    backoff: Backoff,
    metrics: QueueMetrics,
    state: Mutex<State<T>>,
    changed: Notify,
}

/// Delayed items that are added in one go, under the lock.
const PROMOTED: usize = 64;

/// Ordered maps: a hash map of a hundred thousand items would move them all in one insertion when it grows, under the
/// lock and on a reactor.
struct State<T> {
    ready: VecDeque<T>,
    /// Items in `ready`, or added again while being processed, with the time they were added.
    dirty: BTreeMap<T, Instant>,
    working: BTreeMap<T, Instant>,
    later: BinaryHeap<Reverse<(Instant, u64)>>,
    delayed: BTreeMap<u64, T>,
    /// The earliest entry of `later` per item; other entries are ignored.
    due: BTreeMap<T, (Instant, u64)>,
    failures: BTreeMap<T, u32>,
    next_id: u64,
    closed: bool,
}

impl<T: Clone + Ord> WorkQueue<T> {
    /// Creates an empty queue. `metrics` come from [`crate::telemetry::Telemetry::queue`].
    pub(crate) fn new(backoff: Backoff, metrics: QueueMetrics) -> Self {
        Self(Arc::new(Inner {
            backoff,
            metrics,
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: BTreeMap::new(),
                working: BTreeMap::new(),
                later: BinaryHeap::new(),
                delayed: BTreeMap::new(),
                due: BTreeMap::new(),
                failures: BTreeMap::new(),
                next_id: 0,
                closed: false,
            }),
            changed: Notify::new(),
        }))
    }

    /// Adds an item, unless it is queued already. If it is being processed, it is queued again by
    /// [`Self::done`].
    pub(crate) fn add(&self, item: T) {
        self.lock().add(&self.0.metrics, item);
        self.0.changed.notify_one();
    }

    /// Adds an item after a delay. If the item is already scheduled, the earlier time applies.
    pub(crate) fn add_after(&self, item: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(item);
        }
        let mut s = self.lock();
        if s.closed {
            return;
        }
        let at = Instant::now() + delay;
        if s.due.get(&item).is_some_and(|(earlier, _)| *earlier <= at) {
            return;
        }
        let id = s.next_id;
        s.next_id += 1;
        // The heap cannot remove from its middle; the entry of the old time is skipped when it is due, since
        // its id is gone.
        if let Some((_, old)) = s.due.insert(item.clone(), (at, id)) {
            s.delayed.remove(&old);
        }
        s.delayed.insert(id, item);
        s.later.push(Reverse((at, id)));
        drop(s);
        self.0.changed.notify_one();
    }

    /// Adds a failed item after its backoff.
    pub(crate) fn add_rate_limited(&self, item: T) {
        self.add_failed(item, |failures| self.0.backoff.delay(failures));
    }

    /// Adds a failed item after the delay for its earlier failures. [`Self::process`] forgets them when the
    /// item's work succeeds without adding it again this way.
    pub(crate) fn add_failed(&self, item: T, delay: impl FnOnce(u32) -> Duration) {
        let failures = {
            let mut s = self.lock();
            let n = s.failures.entry(item.clone()).or_insert(0);
            let before = *n;
            *n = n.saturating_add(1);
            before
        };
        self.0.metrics.retries.inc();
        // Outside the lock, which `add_after` takes.
        self.add_after(item, delay(failures));
    }

    /// Resets the failure count of an item.
    pub(crate) fn forget(&self, item: &T) {
        self.lock().failures.remove(item);
    }

    /// Forgets an item whose object was deleted: its failures, and when it was to be processed again. One
    /// that is ready is still processed.
    pub(crate) fn remove(&self, item: &T) {
        self.lock().remove(item);
    }

    /// Number of failures of an item since it was last forgotten.
    pub(crate) fn failures(&self, item: &T) -> u32 {
        self.lock().failures.get(item).copied().unwrap_or(0)
    }

    /// Waits for the next item; `None` once the queue was shut down and is empty. Each item must be returned
    /// with [`Self::done`].
    ///
    /// # Cancel safety
    /// Cancel safe: an item is taken only in the poll that returns it.
    pub(crate) async fn next(&self) -> Option<T> {
        loop {
            // Created before the state is checked, so that no notification in between is lost.
            let changed = self.0.changed.notified();
            let wait_until = {
                let mut s = self.lock();
                let wait_until = s.promote(&self.0.metrics);
                if let Some(item) = s.take(&self.0.metrics) {
                    let more = !s.ready.is_empty();
                    drop(s);
                    // One notification may stand for several items, so it is passed on to the next worker.
                    if more {
                        self.0.changed.notify_one();
                    }
                    return Some(item);
                }
                if s.closed {
                    drop(s);
                    // Passed on: the notification of `shut_down` wakes one worker, which wakes the next.
                    self.0.changed.notify_one();
                    return None;
                }
                wait_until
            };
            match wait_until {
                // Order is irrelevant: either branch leads to another check of the state.
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Marks an item as processed.
    pub(crate) fn done(&self, item: &T) {
        let mut s = self.lock();
        if let Some(since) = s.working.remove(item) {
            self.0.metrics.work_duration.observe(since.elapsed().as_secs_f64());
        }
        if s.dirty.contains_key(item) {
            // It was added while it was being processed; only now may another worker take it.
            s.ready.push_back(item.clone());
            self.0.metrics.depth.set(s.ready.len() as i64);
            drop(s);
            self.0.changed.notify_one();
        }
    }

    /// Processes items until the queue is shut down. An item whose `work` fails or panics is logged and retried
    /// with backoff: one item that cannot be processed must not end the worker, which all others need.
    ///
    /// # Cancel safety
    /// Cancel safe as far as `work` is: the item in progress is lost.
    pub(crate) async fn process<E, F>(&self, name: &'static str, work: impl Fn(T) -> F)
    where
        T: std::fmt::Display,
        E: std::fmt::Display,
        F: Future<Output = Result<(), E>>,
    {
        while let Some(item) = self.next().await {
            let failures = self.failures(&item);
            // In an async block, so that a panic of `work` before its first await is caught as well.
            let attempt = AssertUnwindSafe(async { work(item.clone()).await });
            match attempt.catch_unwind().await {
                // The work may have added the item as failed itself.
                Ok(Ok(())) if self.failures(&item) == failures => self.forget(&item),
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let failures = failures + 1;
                    if is_reported(failures) {
                        tracing::warn!(queue = name, %item, failures, %error, "an item keeps failing and is retried");
                    } else {
                        tracing::debug!(queue = name, %item, %error, "an item is retried");
                    }
                    self.add_rate_limited(item.clone());
                }
                Err(panic) => {
                    let text = text_of(&*panic);
                    tracing::error!(queue = name, %item, "the work for an item panicked and is retried: {text}");
                    self.add_rate_limited(item.clone());
                }
            }
            self.done(&item);
            // Work that never waits would hold its reactor for the whole queue.
            tokio::task::yield_now().await;
        }
    }

    /// Whether an item waits for a worker, delayed ones apart.
    pub(crate) fn has_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// Number of items ready now, without delayed ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().ready.len()
    }

    /// True if no item is ready.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses new items and drops delayed ones. [`Self::next`] returns the items that are ready, then
    /// `None`.
    pub(crate) fn shut_down(&self) {
        let mut s = self.lock();
        s.closed = true;
        s.later.clear();
        s.delayed.clear();
        s.due.clear();
        drop(s);
        // `notify_waiters` reaches the workers that wait now, the stored permit one that is about to.
        self.0.changed.notify_waiters();
        self.0.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock()
    }
}

impl<T: Clone + Ord> State<T> {
    fn add(&mut self, metrics: &QueueMetrics, item: T) {
        // Added once while queued, and once more while being processed; further adds mean the same work.
        if self.closed || self.dirty.contains_key(&item) {
            return;
        }
        metrics.adds.inc();
        self.dirty.insert(item.clone(), Instant::now());
        if !self.working.contains_key(&item) {
            self.ready.push_back(item);
        }
        metrics.depth.set(self.ready.len() as i64);
    }

    /// Moves due items to the ready list; returns the time of the next one.
    fn promote(&mut self, metrics: &QueueMetrics) -> Option<Instant> {
        let now = Instant::now();
        for _ in 0..PROMOTED {
            let Reverse((at, id)) = self.later.peek().copied()?;
            // A past entry, or one whose item was removed or rescheduled.
            if at > now && self.delayed.contains_key(&id) {
                return Some(at);
            }
            self.later.pop();
            if let Some(item) = self.delayed.remove(&id) {
                self.due.remove(&item);
                self.add(metrics, item);
            }
        }
        // The next call continues.
        self.later.peek().map(|_| now)
    }

    fn remove(&mut self, item: &T) {
        self.failures.remove(item);
        if let Some((_, id)) = self.due.remove(item) {
            self.delayed.remove(&id);
        }
        // Entries of removed items would stay until they are due, which may be in an hour.
        if self.later.len() > 2 * self.delayed.len() + 64 {
            self.later.retain(|Reverse((_, id))| self.delayed.contains_key(id));
            self.later.shrink_to_fit();
        }
    }

    fn take(&mut self, metrics: &QueueMetrics) -> Option<T> {
        let item = self.ready.pop_front()?;
        let now = Instant::now();
        // A burst must not keep its memory.
        if self.ready.capacity() > 128 && self.ready.len() < self.ready.capacity() / 4 {
            self.ready.shrink_to(self.ready.len() * 2);
        }
        if let Some(added) = self.dirty.remove(&item) {
            metrics.queue_duration.observe((now - added).as_secs_f64());
        }
        // Between `take` and `done` an equal item is only marked as dirty, so no two workers process it.
        self.working.insert(item.clone(), now);
        metrics.depth.set(self.ready.len() as i64);
        Some(item)
    }
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Whether the n-th failure in a row is worth a warning. The first ones are usually conflicts, which the next
/// attempt resolves; later ones are reported at growing intervals, since an item may fail for days.
fn is_reported(failures: u32) -> bool {
    failures >= 4 && failures.is_power_of_two()
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests;
