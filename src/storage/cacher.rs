//! The watch cache of one resource: an immutable snapshot for reads, a ring of events for watches and exact reads, and
//! the fan-out to watchers. It knows no backend: whoever owns it calls, in revision order and from one place,
//! [`Cacher::apply`] (then [`Progress::set_applied`]) and [`Cacher::dispatch`] (then [`Progress::set_dispatched`]).
//!
//! Locks: reads of the present state take none. `history` before `hub`; neither is held across an await.

pub mod counters;
mod digest;
pub mod history;
mod hub;
mod progress;
mod read;
mod snapshot;
mod start;
#[cfg(test)]
mod tests;
mod watch;

use super::backend::CacheFigures;
use super::budget::{Budget, Share};
use super::{Entry, Event, Revision};
use arc_swap::ArcSwap;
use history::{Bounds, History};
use hub::{Hub, lock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub use counters::{Comparison, Counters};
pub use digest::Digest;
pub use progress::{FRESHNESS_WAIT, Progress};
pub use snapshot::Snapshot;

/// Changes a watcher may be behind before its patience runs.
const QUEUE: usize = 100;

/// What a cacher begins with.
pub struct Initial {
    /// The state.
    pub state: Snapshot,
    /// Events after this revision are in `events`.
    pub base: Revision,
    /// What led to the state, oldest first.
    pub events: Vec<Arc<Event>>,
}

/// What a cacher keeps to, and where it says so.
pub struct Setting {
    /// Of its ring.
    pub bounds: Bounds,
    /// What it takes is counted here.
    pub budget: Arc<Budget>,
    /// What it does is counted here.
    pub counters: Arc<Counters>,
}

impl Setting {
    /// With counters of its own.
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
    stopped: AtomicBool,
    /// Bytes the history has forgotten, and how many those were when watches were swept last.
    forgotten: AtomicU64,
    swept: AtomicU64,
}

impl Cacher {
    /// Serves from `initial` on.
    pub fn new(progress: Arc<Progress>, initial: Initial, setting: Setting) -> Self {
        let history = History::new(setting.bounds, initial.base, initial.events, Instant::now());
        let share = Share::new(setting.budget);
        share.set(initial.state.bytes(), history.bytes());
        setting.counters.loads.add(1);
        Self {
            progress,
            share,
            counters: setting.counters,
            snapshot: ArcSwap::from_pointee(initial.state),
            history: Mutex::new(history),
            hub: Mutex::default(),
            stopped: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// The present state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The entry at `key` in the present state.
    pub fn peek(&self, key: &str) -> Option<Arc<Entry>> {
        self.snapshot.load().get(key).cloned()
    }

    /// The revision of the newest applied change. Changes are applied before anybody is told of them.
    pub fn changed(&self) -> Revision {
        self.snapshot.load().revision
    }

    /// Number of objects.
    pub fn count(&self) -> usize {
        self.snapshot.load().len()
    }

    /// Number of running watches.
    pub fn watchers(&self) -> usize {
        lock(&self.hub).len()
    }

    /// What it holds, for metrics.
    pub fn figures(&self) -> CacheFigures {
        let state = self.snapshot();
        let (events, history_bytes, capacity) = lock(&self.history).figures();
        CacheFigures {
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

    /// What it has done so far.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    // === the backend's side ===

    /// Makes committed changes visible to reads.
    pub fn apply(&self, events: &[Arc<Event>]) {
        let now = Instant::now();
        let mut history = lock(&self.history);
        let mut state = Snapshot::clone(&self.snapshot.load());
        for event in events {
            state.apply(event);
            history.push(now, event.clone(), &state);
        }
        self.counters.received.add(events.len() as u64);
        self.settle(&mut history, now, &state);
        self.snapshot.store(Arc::new(state));
    }

    /// Lets go of history that is out of bounds, and says what is taken now.
    fn settle(&self, history: &mut History, now: Instant, state: &Snapshot) {
        let room = history.capacity();
        history.trim(now, self.share.history_limit());
        self.forgotten.store(history.forgotten(), Ordering::Relaxed);
        match history.capacity() {
            more if more > room => self.counters.grown.add(1),
            less if less < room => self.counters.shrunk.add(1),
            _ => {}
        }
        self.share.set(state.bytes(), history.bytes());
    }

    /// Hands applied changes to the watchers they concern.
    pub fn dispatch(&self, events: &[Arc<Event>]) {
        let sleepers = {
            let mut hub = lock(&self.hub);
            if hub.is_empty() {
                return;
            }
            self.counters.dispatched.add(events.len() as u64);
            let before = hub.terminated;
            let (now, forgotten) = (Instant::now(), self.forgotten.load(Ordering::Relaxed));
            let sleepers = hub.dispatch(events, now, forgotten);
            // Not at every change, because all watches are looked at.
            let bounds = self.share.watch_bounds();
            if forgotten - self.swept.load(Ordering::Relaxed) > bounds.pinned as u64 / 8 {
                self.swept.store(forgotten, Ordering::Relaxed);
                hub.sweep(&bounds, forgotten, now);
            }
            self.counters.terminated.add(hub.terminated - before);
            sleepers
        };
        hub::wake(sleepers);
    }

    /// Lets go of history that has grown too old, and of what watches hold whose clients do not read; for quiet times,
    /// since [`apply`](Self::apply) and [`dispatch`](Self::dispatch) do it too.
    pub fn trim(&self) {
        self.trim_at(Instant::now());
    }

    fn trim_at(&self, now: Instant) {
        {
            let mut history = lock(&self.history);
            let state = self.snapshot();
            self.settle(&mut history, now, &state);
        }
        let mut hub = lock(&self.hub);
        let before = hub.terminated;
        hub.sweep(&self.share.watch_bounds(), self.forgotten.load(Ordering::Relaxed), now);
        self.counters.terminated.add(hub.terminated - before);
    }

    /// Ends all watches and takes no new ones; reads go on.
    pub fn close(&self) {
        lock(&self.hub).close();
    }

    /// Ends all watches and refuses reads from now on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.close();
    }
}
