//! Who watches a resource, found by what they watch, and the queue of each.
//!
//! An event reaches the watchers of everything, those of its namespace and those of its very key; others cost nothing.
//! A queue is bounded: a reader that leaves it full for longer than [`PATIENCE`], or lets it grow to [`HARD_LIMIT`], is
//! ended. The dispatcher never waits for a reader and never skips an event.
//!
//! What a watch has not read yet keeps old versions of objects from being freed. A watch that keeps too much, or reads
//! nothing for too long, is cancelled ([`Hub::sweep`]): it lets go of everything and ends, and its client resumes.

use super::snapshot::INDEXED;
use super::start::Start;
use crate::storage::budget::WatchBounds;
use crate::storage::{Event, EventType, Predicate, Revision};
use futures_util::task::AtomicWaker;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long a queue may stay full.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Changes a queue never exceeds, not even within the patience.
pub const HARD_LIMIT: usize = 16_384;

pub(super) type Change = (EventType, Arc<Event>);

/// The dispatcher's side of a watch.
pub(super) struct Subscriber {
    pub prefix: Box<str>,
    pub single: bool,
    pub predicate: Predicate,
    /// Events up to here are not wanted: they are in the initial state, in the replay, or before the start asked for.
    pub after: Revision,
    pub full_at: usize,
    /// There are changes in the queue, or it has ended: a reader that finds neither takes no lock.
    ready: AtomicBool,
    /// What comes before the queue.
    pub start: Mutex<Start>,
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<Queued>,
    full_since: Option<Instant>,
    ended: bool,
    /// Reads so far.
    reads: u64,
    /// `reads` at the last sweep that found another number, or nothing to read, and when that was.
    swept: Option<(u64, Instant)>,
}

struct Queued {
    change: Change,
    /// [`History::forgotten`](super::history::History::forgotten) when it was queued.
    mark: u64,
}

/// What a reader finds in its queue.
pub(super) enum Taken {
    Some(Change),
    Empty,
    Ended,
}

/// Room for changes that an empty queue keeps.
const KEPT: usize = 64;

/// What came of offering an event to a watcher.
#[derive(PartialEq)]
enum Offer {
    /// Nothing to do: not its concern, or its wake is under way.
    Quiet,
    /// It slept.
    Wake,
    /// It was too slow and is ended.
    Terminated,
}

/// Locks; a panic of another holder leaves these structures whole, so poison is of no interest.
pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscriber {
    pub fn new(prefix: &str, single: bool, predicate: Predicate, after: Revision, full_at: usize) -> Self {
        Self {
            prefix: prefix.into(),
            single,
            predicate,
            after,
            full_at,
            ready: AtomicBool::new(false),
            start: Mutex::default(),
            queue: Mutex::default(),
            waker: AtomicWaker::new(),
        }
    }

    /// True where the key is in scope.
    pub fn covers(&self, key: &str) -> bool {
        if self.single {
            *key == *self.prefix
        } else {
            key.starts_with(&*self.prefix)
        }
    }

    /// The value of the indexed field that all it wants have, where that leads to it: it watches everything else, and an
    /// object without the field is not meant.
    fn place(&self) -> Option<&str> {
        let value = self.predicate.requires(INDEXED)?;
        (self.prefix.is_empty() && !self.single && !value.is_empty()).then_some(value)
    }

    /// Queues those of the events that concern this watcher.
    fn offer(&self, events: &[Arc<Event>], now: Instant, mark: u64) -> Offer {
        let mut wanted = events
            .iter()
            .filter(|e| e.entry.revision > self.after)
            .filter_map(|e| Some((e.seen_by(&self.predicate)?, e)))
            .peekable();
        if wanted.peek().is_none() {
            return Offer::Quiet;
        }
        let mut q = lock(&self.queue);
        if q.ended {
            return Offer::Quiet;
        }
        // A queue that was not empty has its wake under way.
        let sleeps = q.changes.is_empty();
        for (kind, event) in wanted {
            if q.changes.len() >= self.full_at {
                let since = *q.full_since.get_or_insert(now);
                if now.saturating_duration_since(since) > PATIENCE || q.changes.len() >= HARD_LIMIT {
                    q.ended = true;
                    self.ready.store(true, Ordering::Release);
                    return Offer::Terminated;
                }
            }
            let change = (kind, event.clone());
            q.changes.push_back(Queued { change, mark });
        }
        self.ready.store(true, Ordering::Release);
        if sleeps { Offer::Wake } else { Offer::Quiet }
    }

    /// Takes the next change.
    pub fn take(&self) -> Taken {
        if !self.is_ready() {
            return Taken::Empty;
        }
        let mut q = lock(&self.queue);
        q.reads += 1;
        let Some(next) = q.changes.pop_front() else {
            return if q.ended { Taken::Ended } else { Taken::Empty };
        };
        if q.changes.len() < self.full_at / 2 {
            q.full_since = None;
        }
        if q.changes.is_empty() {
            if q.changes.capacity() > KEPT {
                q.changes = VecDeque::new();
            }
            self.ready.store(q.ended, Ordering::Release);
        }
        Taken::Some(next.change)
    }

    /// Cancels where too much is held back, or has been for too long; `true` where it was.
    fn sweep(&self, bounds: &WatchBounds, forgotten: u64, now: Instant) -> bool {
        // Whoever holds this lock is reading.
        let Ok(mut start) = self.start.try_lock() else {
            return false;
        };
        let mut q = lock(&self.queue);
        let oldest = start.mark().or_else(|| q.changes.front().map(|queued| queued.mark));
        let reads = q.reads + start.reads();
        let Some(oldest) = oldest.or((!matches!(*start, Start::Over)).then_some(forgotten)) else {
            q.swept = Some((reads, now));
            return false;
        };
        let since = match q.swept {
            Some((then, since)) if then == reads => since,
            _ => now,
        };
        q.swept = Some((reads, since));
        let is_stalled = now.saturating_duration_since(since) > bounds.stall;
        if !is_stalled && forgotten.saturating_sub(oldest) <= bounds.pinned as u64 {
            return false;
        }
        *start = Start::Cancelled;
        q.changes = VecDeque::new();
        let was_ended = std::mem::replace(&mut q.ended, true);
        self.ready.store(true, Ordering::Release);
        drop(q);
        self.waker.wake();
        !was_ended
    }

    /// Events and objects of the initial state that it holds, not those of a shared snapshot.
    #[cfg(test)]
    pub fn held(&self) -> (usize, bool) {
        let start = lock(&self.start);
        (lock(&self.queue).changes.len() + start.held(), start.has_snapshot())
    }

    /// True where [`take`](Self::take) would find something, or the end.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    fn end(&self) {
        {
            let mut q = lock(&self.queue);
            q.ended = true;
            self.ready.store(true, Ordering::Release);
        }
        self.waker.wake();
    }
}

/// The key's namespace with its slash; empty where it has none.
fn namespace(event: &Arc<Event>) -> &str {
    let key = &*event.entry.key;
    key.find('/').map_or("", |i| &key[..=i])
}

type Group = BTreeMap<u64, Arc<Subscriber>>;

/// All watchers of a resource.
#[derive(Default)]
pub(super) struct Hub {
    next: u64,
    everything: Group,
    /// By exact key, or by a prefix that is one whole namespace with its slash.
    scoped: HashMap<Box<str>, Group>,
    /// Watchers of everything whose selector wants one value of the indexed field, by it.
    placed: HashMap<Box<str>, Group>,
    /// Prefixes of any other form.
    odd: Group,
    pub terminated: u64,
    closed: bool,
}

impl Hub {
    fn group(&mut self, s: &Subscriber) -> &mut Group {
        let namespace = s.prefix.find('/').is_some_and(|i| i + 1 == s.prefix.len());
        if s.single || namespace {
            self.scoped.entry(s.prefix.clone()).or_default()
        } else if let Some(value) = s.place() {
            self.placed.entry(value.into()).or_default()
        } else if s.prefix.is_empty() {
            &mut self.everything
        } else {
            &mut self.odd
        }
    }

    /// `None`: closed.
    pub fn add(&mut self, s: Arc<Subscriber>) -> Option<u64> {
        if self.closed {
            return None;
        }
        self.next += 1;
        let id = self.next;
        self.group(&s).insert(id, s.clone());
        Some(id)
    }

    pub fn remove(&mut self, id: u64, s: &Subscriber) {
        let group = self.group(s);
        group.remove(&id);
        if group.is_empty() {
            self.scoped.remove(&s.prefix);
            if let Some(value) = s.place() {
                self.placed.remove(value);
            }
        }
    }

    /// Number of watchers.
    pub fn len(&self) -> usize {
        let grouped = self.scoped.values().chain(self.placed.values());
        self.everything.len() + self.odd.len() + grouped.map(BTreeMap::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.everything.is_empty() && self.odd.is_empty() && self.scoped.is_empty() && self.placed.is_empty()
    }

    /// Queues the events, in order, where they belong; returns whom to wake, each once. `mark`: bytes the history has
    /// forgotten until now.
    pub fn dispatch(&mut self, events: &[Arc<Event>], now: Instant, mark: u64) -> Vec<Arc<Subscriber>> {
        let mut wake: Vec<Arc<Subscriber>> = Vec::new();
        let mut terminated = 0;
        let mut offer = |s: &Arc<Subscriber>, events: &[Arc<Event>]| {
            let outcome = s.offer(events, now, mark);
            if outcome != Offer::Quiet {
                terminated += u64::from(outcome == Offer::Terminated);
                wake.push(s.clone());
            }
        };
        for s in self.everything.values() {
            offer(s, events);
        }
        if !self.scoped.is_empty() {
            for run in events.chunk_by(|a, b| namespace(a) == namespace(b)) {
                for s in self
                    .scoped
                    .get(namespace(&run[0]))
                    .into_iter()
                    .flat_map(BTreeMap::values)
                {
                    offer(s, run);
                }
            }
        }
        for event in events {
            let key = &*event.entry.key;
            let event = std::slice::from_ref(event);
            for s in self.scoped.get(key).into_iter().flat_map(BTreeMap::values) {
                offer(s, event);
            }
            if !self.placed.is_empty() {
                let now = event[0].entry.field(INDEXED);
                let before = event[0].previous.as_ref().and_then(|e| e.field(INDEXED));
                for value in [now, before.filter(|b| now != Some(*b))].into_iter().flatten() {
                    for s in self.placed.get(value).into_iter().flat_map(BTreeMap::values) {
                        offer(s, event);
                    }
                }
            }
            for s in self.odd.values().filter(|s| s.covers(key)) {
                offer(s, event);
            }
        }
        self.terminated += terminated;
        wake
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Subscriber>> {
        let groups = [&self.everything, &self.odd].into_iter();
        let groups = groups.chain(self.scoped.values()).chain(self.placed.values());
        groups.flat_map(BTreeMap::values)
    }

    /// Cancels watches that keep more than they may from being freed, or whose clients have read nothing for too long
    /// while there was something to read. `forgotten`: bytes that the history has forgotten until now. All watches
    /// together keep no more than the one that has waited longest.
    pub fn sweep(&mut self, bounds: &WatchBounds, forgotten: u64, now: Instant) {
        let cancelled = self.all().filter(|s| s.sweep(bounds, forgotten, now)).count();
        self.terminated += cancelled as u64;
    }

    /// Ends everybody, and lets nobody in any more.
    pub fn close(&mut self) {
        self.closed = true;
        self.all().for_each(|s| s.end());
    }
}

/// Wakes readers, outside of any lock.
pub(super) fn wake(readers: Vec<Arc<Subscriber>>) {
    for s in readers {
        s.waker.wake();
    }
}
