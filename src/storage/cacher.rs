//! The watch cache of one resource, as upstream's `pkg/storage/cacher`: an immutable snapshot for reads, a
//! ring of events for watches and exact-revision reads, and the fan-out to watchers.
//!
//! [`Cacher`] does not depend on a backend. Its owner calls, in revision order and from one place,
//! [`Cacher::apply`] (then [`Progress::set_applied`]) and [`Cacher::dispatch`] (then
//! [`Progress::set_dispatched`]).
//!
//! Locking: reads of the current state take no lock. `history` is locked before `hub`; neither is held across
//! an await or while a selector is evaluated.

mod backlog;
pub(crate) mod counters;
mod digest;
pub(crate) mod history;
mod hub;
mod progress;
mod read;
mod scope;
mod sharded;
mod snapshot;
#[cfg(test)]
mod tests;
mod watch;

use super::budget::{Budget, Share};
use super::{Entry, Event, Revision};
use arc_swap::ArcSwap;
use history::{Bounds, History};
use hub::Hub;
use scope::SelectorIds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use counters::{CacheStats, Comparison, Counters};
pub(crate) use digest::Digest;
pub(crate) use progress::FRESHNESS_WAIT;
pub use progress::Progress;
pub use snapshot::Snapshot;

use crate::sync::Mutex;

/// Events a watcher may lag behind before its grace period starts.
const QUEUE: usize = 100;

/// The content a cacher starts with.
pub struct Initial {
    /// The objects after the last of `events`.
    pub state: Snapshot,
    /// `events` holds all events after this revision.
    pub base: Revision,
    /// The events that led to the state, oldest first.
    pub events: Vec<Arc<Event>>,
}

/// Configuration of a cacher.
pub struct CacherConfig {
    /// Bounds of the event history.
    pub bounds: Bounds,
    /// The budget its memory is accounted to.
    pub budget: Arc<Budget>,
    /// Where its activity is counted; outlives the cacher.
    pub counters: Arc<Counters>,
}

impl CacherConfig {
    /// Creates a setting with fresh counters.
    pub fn new(bounds: Bounds, budget: Arc<Budget>) -> Self {
        Self {
            bounds,
            budget,
            counters: Arc::default(),
        }
    }
}

/// The watch cache of one resource.
pub struct Cacher {
    progress: Arc<Progress>,
    share: Share,
    counters: Arc<Counters>,
    snapshot: ArcSwap<Snapshot>,
    history: Mutex<History>,
    hub: Mutex<Hub>,
    selectors: SelectorIds,
    stopped: AtomicBool,
    /// Bytes of history discarded so far, and the value of that at the last sweep of the watchers.
    discarded_bytes: AtomicU64,
    swept: AtomicU64,
}

impl Cacher {
    /// Starts serving from `initial`.
    pub fn new(progress: Arc<Progress>, initial: Initial, config: CacherConfig) -> Self {
        let history = History::new(config.bounds, initial.base, initial.events, Instant::now());
        let share = Share::new(config.budget);
        share.set(initial.state.bytes(), history.bytes());
        // Counted here and not by the backend, so that a reload counts as well.
        config.counters.loads.add(1);
        Self {
            progress,
            share,
            counters: config.counters,
            snapshot: ArcSwap::from_pointee(initial.state),
            history: Mutex::new(history),
            hub: Mutex::default(),
            selectors: SelectorIds::default(),
            stopped: AtomicBool::new(false),
            discarded_bytes: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// Returns the current state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Returns the entry at `key` in the current state.
    pub fn peek(&self, key: &str) -> Option<Arc<Entry>> {
        self.snapshot.load().get(key).cloned()
    }

    /// Revision of the newest applied change. Changes are applied before they are dispatched.
    pub fn last_change(&self) -> Revision {
        self.snapshot.load().revision
    }

    /// Revision of the newest applied change in a namespace, if it is later than `since`. If the history cannot
    /// tell, that of the newest change of all.
    pub fn last_change_in(&self, namespace: &str, since: Revision) -> Option<Revision> {
        // The usual case takes no lock.
        let last = Some(self.last_change()).filter(|last| *last > since)?;
        let history = self.history.lock();
        let Some(mut changes) = history.newest_after(since) else {
            return Some(last);
        };
        let is_there = |key: &str| key.strip_prefix(namespace).is_some_and(|name| name.starts_with('/'));
        changes.find(|e| is_there(&e.entry.key)).map(|e| e.entry.revision)
    }

    /// Number of objects in the current state.
    pub fn count(&self) -> usize {
        self.snapshot.load().len()
    }

    /// Number of running watches.
    pub fn watchers(&self) -> usize {
        self.hub.lock().len()
    }

    /// Reads statistics for metrics.
    pub fn stats(&self) -> CacheStats {
        let state = self.snapshot();
        let (events, history_bytes, capacity) = self.history.lock().stats();
        CacheStats {
            objects: state.len(),
            objects_bytes: state.bytes() as u64,
            history_bytes: history_bytes as u64,
            events,
            capacity,
            watchers: self.watchers(),
            revision: state.revision.0,
            counters: self.counters.clone(),
        }
    }

    /// The counters of its activity.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    // === called by the backend ===

    /// Makes committed changes visible to reads.
    pub fn apply(&self, events: &[Arc<Event>]) {
        let now = Instant::now();
        {
            let mut history = self.history.lock();
            // Snapshots share structure, so the copy costs no more than the changed paths.
            let mut state = Snapshot::clone(&self.snapshot.load());
            let room = history.capacity();
            for event in events {
                state.apply(event);
                history.push(now, event.clone(), &state);
            }
            if history.capacity() > room {
                self.counters.grown.add(1);
            }
            // Stored while the history is locked, so that `subscribe` sees both at the same revision.
            self.snapshot.store(Arc::new(state));
        }
        self.counters.received.add(events.len() as u64);
        self.trim_history(now);
    }

    /// Trims history that is out of bounds and updates the memory accounting. Starts of watches wait for the history's
    /// lock, so it is held for a number of events only, and what they occupied is freed without it.
    fn trim_history(&self, now: Instant) {
        // Once: they are this history's part of what all may use, and would shrink with it.
        let limits = self.share.history_limits();
        let mut more = true;
        while more {
            let mut history = self.history.lock();
            let room = history.capacity();
            let discarded = history.trim(now, limits);
            // Relaxed is enough: written under the history's lock, and the sweep only needs an approximate age.
            self.discarded_bytes.store(history.discarded_bytes(), Ordering::Relaxed);
            if history.capacity() < room {
                self.counters.shrunk.add(1);
            }
            // The snapshot is read under the history's lock, so the accounting does not mix two revisions.
            self.share.set(self.snapshot.load().bytes(), history.bytes());
            drop(history);
            more = discarded.more;
        }
    }

    /// Delivers applied changes to the watchers they concern.
    pub fn dispatch(&self, events: &[Arc<Event>]) {
        self.dispatch_at(events, Instant::now());
    }

    fn dispatch_at(&self, events: &[Arc<Event>], now: Instant) {
        let concerned = {
            let hub = self.hub.lock();
            if hub.is_empty() {
                return;
            }
            // Selectors are evaluated without the lock, see `hub::offer`.
            hub.concerned(events)
        };
        self.counters.dispatched.add(events.len() as u64);
        let discarded_bytes = self.discarded_bytes.load(Ordering::Relaxed);
        // A watch that starts meanwhile has these events in its initial state or replay.
        let (sleepers, terminated) = hub::offer(concerned, events, now, discarded_bytes);
        self.counters.terminated.add(terminated);
        // A sweep visits every watch, so it runs only after an eighth of the pinned limit has been discarded.
        let most = self.share.watch_bounds().max_pinned_bytes as u64 / 8;
        // Cannot underflow: both values come from this counter, which only grows, and only this thread writes
        // `swept`.
        if discarded_bytes - self.swept.load(Ordering::Relaxed) > most {
            self.swept.store(discarded_bytes, Ordering::Relaxed);
            self.sweep(discarded_bytes, now);
        }
        // Woken last, outside all locks: a woken task may run at once on another thread and take them.
        hub::wake(sleepers);
    }

    fn sweep(&self, discarded_bytes: u64, now: Instant) {
        // A copy of the list, because a sweep locks each watcher and must not hold up new watches meanwhile.
        let all = self.hub.lock().watchers();
        let cancelled = hub::sweep(&all, &self.share.watch_bounds(), discarded_bytes, now);
        self.counters.terminated.add(cancelled);
    }

    /// Trims expired history, drops the frames of old events, and sweeps stalled watches. Called periodically
    /// for idle resources, since [`apply`](Self::apply) and [`dispatch`](Self::dispatch) do the same.
    pub fn trim(&self) {
        self.trim_at(Instant::now());
    }

    fn trim_at(&self, now: Instant) {
        self.trim_history(now);
        // Only here: a frame is the encoding that watchers of one event share, useless once they have all sent it.
        while self.history.lock().drop_frames(now) {}
        self.share.budget().maintain();
        self.sweep(self.discarded_bytes.load(Ordering::Relaxed), now);
    }

    /// Ends all watches and refuses new ones; reads continue.
    pub fn close(&self) {
        self.hub.lock().close();
    }

    /// Ends all watches and refuses all further reads.
    pub fn stop(&self) {
        // Before the watches end: a client that reconnects at once must not be accepted again.
        self.stopped.store(true, Ordering::Release);
        self.close();
    }
}
