//! [`Hub`]: the watchers of a resource, indexed by scope, and the event queue of each ([`Subscriber`]).
//!
//! An event is offered to the watchers of the whole resource, of its namespace and of its key; other watchers
//! cost nothing. Watchers with equal selectors are adjacent in the index, and the selector is evaluated once for
//! all of them ([`offer`]).
//!
//! Queues are bounded: a watch whose queue stays full longer than [`FULL_QUEUE_GRACE`] or reaches
//! [`HARD_LIMIT`] is ended. The dispatcher never waits for a reader and never skips an event.
//! (Upstream: `cache_watcher.go` and `time_budget.go` in `pkg/storage/cacher`.)
//!
//! Unread items keep old versions of objects alive. [`sweep`] cancels watches that keep too much or have
//! not been read for too long: they release everything and end, and the client resumes.

use super::backlog::Backlog;
use super::scope::{Change, Scope, SelectorId};
use super::sharded::Sharded;
use super::snapshot::INDEXED;
use crate::storage::budget::WatchBounds;
use crate::storage::{Event, EventType, Revision};
use crate::sync::Mutex;
use futures_util::task::AtomicWaker;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long a queue may stay full before its watch is ended.
pub(crate) const FULL_QUEUE_GRACE: Duration = Duration::from_secs(2);
/// Queue length at which a watch is ended at once.
pub(crate) const HARD_LIMIT: usize = 16_384;

/// The dispatcher's half of a watch; the reader's half is [`CacheWatch`](super::watch::CacheWatch).
pub(super) struct Subscriber {
    pub scope: Scope,
    /// Events up to this revision are skipped: they are part of the initial state or the replay, or precede
    /// the requested start.
    pub after: Revision,
    pub full_at: usize,
    /// True if the queue has changes or has ended. Lets an idle reader avoid the queue's lock.
    ready: AtomicBool,
    /// Items delivered before the queue: initial state or replay.
    pub start: Mutex<Backlog>,
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<Queued>,
    full_since: Option<Instant>,
    ended: bool,
    /// Number of reads so far.
    reads: u64,
    /// The value of `reads` when progress was last seen (or nothing was pending), and the time. Set by
    /// sweeps.
    swept: Option<(u64, Instant)>,
}

struct Queued {
    change: Change,
    /// [`History::discarded_bytes`](super::history::History::discarded_bytes) at the time of queueing.
    discarded_at: u64,
}

/// Result of reading the queue.
pub(super) enum Dequeued {
    Some(Change),
    Empty,
    Ended,
}

/// Capacity an empty queue retains; a larger buffer is freed.
const RETAINED_CAPACITY: usize = 64;

/// Result of offering events to a watcher.
#[derive(PartialEq)]
enum Offer {
    /// Nothing to do: no event matched, or a wake-up is already pending.
    Nothing,
    /// The queue was empty: wake the reader.
    Wake,
    /// The reader was too slow and the watch has been ended.
    Terminated,
}

impl Subscriber {
    pub(crate) fn new(scope: Scope, after: Revision, full_at: usize) -> Self {
        Self {
            scope,
            after,
            full_at,
            ready: AtomicBool::new(false),
            start: Mutex::default(),
            queue: Mutex::default(),
            waker: AtomicWaker::new(),
        }
    }

    /// Queues those of the selected changes, in revision order, that the watcher should see.
    fn offer(&self, selected: &[(EventType, &Arc<Event>)], now: Instant, discarded_at: u64) -> Offer {
        // Its snapshot or replay already contains older changes; delivering one twice would look like another
        // change.
        let older = selected.partition_point(|(_, event)| event.entry.revision <= self.after);
        let wanted = &selected[older..];
        if wanted.is_empty() {
            return Offer::Nothing;
        }
        // Reached only if an event matches: other watchers' queues are not locked.
        let mut q = self.queue.lock();
        if q.ended {
            return Offer::Nothing;
        }
        // If the queue was not empty, the reader has been woken already and has not drained it yet.
        let sleeps = q.changes.is_empty();
        for &(kind, event) in wanted {
            if q.changes.len() >= self.full_at {
                // The grace period starts with the first event that finds the queue full, not when the queue
                // fills up: a reader that drains a burst in time is never at risk.
                let since = *q.full_since.get_or_insert(now);
                if now.saturating_duration_since(since) > FULL_QUEUE_GRACE || q.changes.len() >= HARD_LIMIT {
                    // Events queued so far are still delivered; only then does the reader see the end.
                    q.ended = true;
                    self.ready.store(true, Ordering::Release);
                    return Offer::Terminated;
                }
            }
            let change = (kind, event.clone());
            q.changes.push_back(Queued { change, discarded_at });
        }
        self.ready.store(true, Ordering::Release);
        if sleeps { Offer::Wake } else { Offer::Nothing }
    }

    /// Takes the next change.
    pub(crate) fn take(&self) -> Dequeued {
        if !self.is_ready() {
            return Dequeued::Empty;
        }
        let mut q = self.queue.lock();
        // Counted before the queue is looked at: an idle reader that polls an empty queue is not stalled.
        q.reads += 1;
        let Some(next) = q.changes.pop_front() else {
            return if q.ended { Dequeued::Ended } else { Dequeued::Empty };
        };
        // Hysteresis: the grace period ends only once the reader has drained half of the queue.
        if q.changes.len() < self.full_at / 2 {
            q.full_since = None;
        }
        if q.changes.is_empty() {
            if q.changes.capacity() > RETAINED_CAPACITY {
                // One burst must not leave every one of thousands of idle watches with a large buffer.
                q.changes = VecDeque::new();
            }
            // Under the queue's lock, so that it cannot overwrite the `true` of an event queued in between.
            self.ready.store(q.ended, Ordering::Release);
        }
        Dequeued::Some(next.change)
    }

    /// Cancels the watch if it keeps too much memory alive or has been stalled for too long; returns whether
    /// it did.
    fn sweep(&self, bounds: &WatchBounds, discarded_bytes: u64, now: Instant) -> bool {
        // A locked start means that the watch is being read right now.
        let Some(mut start) = self.start.try_lock() else {
            return false;
        };
        let mut q = self.queue.lock();
        let oldest = start
            .discarded_at()
            .or_else(|| q.changes.front().map(|queued| queued.discarded_at));
        let reads = q.reads + start.reads();
        // Nothing pending means nothing is stalled; a start that is not over counts as pending.
        let Some(oldest) = oldest.or((!matches!(*start, Backlog::Over)).then_some(discarded_bytes)) else {
            q.swept = Some((reads, now));
            return false;
        };
        let since = match q.swept {
            // No read since the last sweep: the stall continues.
            Some((then, since)) if then == reads => since,
            _ => now,
        };
        q.swept = Some((reads, since));
        let is_stalled = now.saturating_duration_since(since) > bounds.stall_timeout;
        if !is_stalled && discarded_bytes.saturating_sub(oldest) <= bounds.max_pinned_bytes as u64 {
            return false;
        }
        // Released here and not when the reader notices: a stalled reader may never be polled again.
        *start = Backlog::Cancelled;
        q.changes = VecDeque::new();
        let was_ended = std::mem::replace(&mut q.ended, true);
        self.ready.store(true, Ordering::Release);
        // Waking under the lock would let the reader block on it at once.
        drop(q);
        self.waker.wake();
        !was_ended
    }

    /// Number of queued events and buffered initial objects, without those of a shared snapshot; and whether
    /// a snapshot is held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, bool) {
        let start = self.start.lock();
        (self.queue.lock().changes.len() + start.held(), start.has_snapshot())
    }

    /// True if [`take`](Self::take) would return a change or the end.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    fn end(&self) {
        {
            let mut q = self.queue.lock();
            q.ended = true;
            self.ready.store(true, Ordering::Release);
        }
        self.waker.wake();
    }
}

/// The key's namespace with its trailing slash; empty for cluster-scoped objects.
fn namespace(event: &Arc<Event>) -> &str {
    let key = &*event.entry.key;
    // Resource keys are `namespace/name` or `name`.
    key.find('/').map_or("", |i| &key[..=i])
}

/// Watchers in the order of their selectors, then of their ids.
type Group = BTreeMap<(SelectorId, u64), Arc<Subscriber>>;
/// Groups by what their watchers have in common.
type Groups = Sharded<Group>;

/// The watchers that a batch of events concerns by their keys.
pub(super) struct Concerned {
    /// Those of the first run, then those of the second, and so on.
    watchers: Vec<Arc<Subscriber>>,
    runs: Vec<Run>,
}

/// Consecutive watchers with equal selectors, and the events to offer to them.
struct Run {
    watchers: usize,
    events: Range<usize>,
}

impl Concerned {
    fn add(&mut self, group: Option<&Group>, events: &Range<usize>) {
        let mut last = None;
        for ((selector, _), watcher) in group.into_iter().flatten() {
            self.watchers.push(watcher.clone());
            match self.runs.last_mut().filter(|_| last == Some(selector)) {
                Some(run) => run.watchers += 1,
                None => self.runs.push(Run {
                    watchers: 1,
                    events: events.clone(),
                }),
            }
            last = Some(selector);
        }
    }
}

/// All watchers of a resource, grouped so that an event finds the interested ones by lookup.
#[derive(Default)]
pub(super) struct Hub {
    next: u64,
    everything: Group,
    /// By exact key, or by a namespace with its trailing slash.
    scoped: Groups,
    /// Watchers of the whole resource whose selector requires one value of the indexed field, by that value.
    by_index: Groups,
    /// By a prefix of any other shape; checked one by one.
    other_prefixes: Groups,
    /// Watchers of all groups: adding up those of a hundred thousand keys would hold the lock for milliseconds.
    count: usize,
    closed: bool,
}

/// The group that a watcher belongs to, with its key where there are several.
enum Place<'a> {
    Scoped(&'a str),
    ByIndex(&'a str),
    Everything,
    OtherPrefix(&'a str),
}

impl Place<'_> {
    fn of(scope: &Scope) -> Place<'_> {
        // Exactly one slash, at the end: `ns/`. Only such a prefix can be found by an event's namespace.
        let namespace = scope.prefix.find('/').is_some_and(|i| i + 1 == scope.prefix.len());
        if scope.single || namespace {
            Place::Scoped(&scope.prefix)
        } else if let Some(value) = scope.indexed_value() {
            Place::ByIndex(value)
        } else if scope.prefix.is_empty() {
            Place::Everything
        } else {
            Place::OtherPrefix(&scope.prefix)
        }
    }
}

/// The group of this key, which may be new.
fn group_of<'a>(groups: &'a mut Groups, key: &str) -> &'a mut Group {
    groups.shard_mut(key).entry(key.into()).or_default()
}

/// Removes a watcher from its group, and a group without watchers: empty ones would grow the map with every key
/// ever watched. Returns the watcher.
fn remove_from(groups: &mut Groups, key: &str, id: (SelectorId, u64)) -> Option<Arc<Subscriber>> {
    let groups = groups.shard_mut(key);
    let group = groups.get_mut(key)?;
    let removed = group.remove(&id);
    if group.is_empty() {
        groups.remove(key);
    }
    removed
}

impl Hub {
    /// Adds a watcher; `None` if the hub is closed.
    pub(crate) fn add(&mut self, s: Arc<Subscriber>) -> Option<u64> {
        // The end has been announced already: this one would wait for ever.
        if self.closed {
            return None;
        }
        self.next += 1;
        let id = self.next;
        let group = match Place::of(&s.scope) {
            Place::Scoped(key) => group_of(&mut self.scoped, key),
            Place::ByIndex(value) => group_of(&mut self.by_index, value),
            Place::Everything => &mut self.everything,
            Place::OtherPrefix(prefix) => group_of(&mut self.other_prefixes, prefix),
        };
        group.insert((s.scope.selector, id), s.clone());
        self.count += 1;
        Some(id)
    }

    pub(crate) fn remove(&mut self, id: u64, s: &Subscriber) {
        let id = (s.scope.selector, id);
        // Only its own group: those of other kinds may have the same key.
        let removed = match Place::of(&s.scope) {
            Place::Scoped(key) => remove_from(&mut self.scoped, key, id),
            Place::ByIndex(value) => remove_from(&mut self.by_index, value, id),
            Place::Everything => self.everything.remove(&id),
            Place::OtherPrefix(prefix) => remove_from(&mut self.other_prefixes, prefix, id),
        };
        self.count -= usize::from(removed.is_some());
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The watchers that the events concern by their keys, each with the events to offer, in order. A watcher
    /// occurs once for each run of events that concern it.
    pub(crate) fn concerned(&self, events: &[Arc<Event>]) -> Concerned {
        let mut concerned = Concerned {
            // At least these are concerned.
            watchers: Vec::with_capacity(self.everything.len()),
            runs: Vec::new(),
        };
        // One entry for the whole batch: each of them locks its queue once.
        concerned.add(Some(&self.everything), &(0..events.len()));
        if !self.scoped.is_unused() {
            // One offer per run of events in a namespace, so that each queue is locked once per run.
            let mut start = 0;
            for run in events.chunk_by(|a, b| namespace(a) == namespace(b)) {
                let group = self.scoped.get(namespace(&run[0]));
                concerned.add(group, &(start..start + run.len()));
                start += run.len();
            }
        }
        for (i, event) in events.iter().enumerate() {
            let this = i..i + 1;
            let key = &*event.entry.key;
            concerned.add(self.scoped.get(key), &this);
            if !self.by_index.is_unused() {
                // An object that moves between values concerns the watchers of both.
                let now = event.entry.field(INDEXED);
                let before = event.previous.as_ref().and_then(|e| e.field(INDEXED));
                // At the old value the watcher sees a deletion, at the new one an addition.
                for value in [now, before.filter(|b| now != Some(*b))].into_iter().flatten() {
                    concerned.add(self.by_index.get(value), &this);
                }
            }
        }
        // Last and linear: prefixes of this shape are rare.
        for (i, event) in events.iter().enumerate() {
            let groups = self.other_prefixes.iter();
            for (_, group) in groups.filter(|(prefix, _)| event.entry.key.starts_with(*prefix)) {
                concerned.add(Some(group), &(i..i + 1));
            }
        }
        concerned
    }

    /// A copy of the list of watchers, whatever they watch, to visit them without the hub's lock.
    pub(crate) fn watchers(&self) -> Vec<Arc<Subscriber>> {
        self.all().cloned().collect()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Subscriber>> {
        let groups = [&self.scoped, &self.by_index, &self.other_prefixes].into_iter();
        let groups = groups.flat_map(Sharded::iter).map(|(_, group)| group);
        groups.chain([&self.everything]).flat_map(BTreeMap::values)
    }

    /// Ends all watches and refuses new ones.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        // The lock is held so that no watch can be added after it has looked.
        self.all().for_each(|s| s.end());
    }
}

/// Queues events at the watchers that they concern; returns the readers to wake, each once, and how many
/// watches were ended. `discarded_at`: bytes the history has discarded so far.
///
/// Evaluates each selector once per event, so it must be called without holding the hub's lock, for which the
/// starts and ends of watches wait.
pub(super) fn offer(
    concerned: Concerned,
    events: &[Arc<Event>],
    now: Instant,
    discarded_at: u64,
) -> (Vec<Arc<Subscriber>>, u64) {
    let (mut wake, mut terminated) = (Vec::new(), 0);
    let mut watchers = concerned.watchers.into_iter();
    let mut selected = Vec::new();
    for run in concerned.runs {
        selected.clear();
        if let Some(first) = watchers.as_slice().first() {
            let predicate = &first.scope.predicate;
            let of_run = events[run.events].iter();
            selected.extend(of_run.filter_map(|event| Some((event.seen_by(predicate)?, event))));
        }
        for subscriber in watchers.by_ref().take(run.watchers) {
            let outcome = subscriber.offer(&selected, now, discarded_at);
            if outcome != Offer::Nothing {
                terminated += u64::from(outcome == Offer::Terminated);
                // Terminated watches are woken, too, to deliver the end.
                wake.push(subscriber);
            }
        }
    }
    (wake, terminated)
}

/// Cancels watches that keep too much memory alive, or whose clients have read nothing for too long while
/// items were pending; returns how many. `discarded_bytes`: bytes that the history has discarded so far. Old
/// versions are shared, so all watches together keep no more alive than the one that lags furthest.
pub(super) fn sweep(all: &[Arc<Subscriber>], bounds: &WatchBounds, discarded_bytes: u64, now: Instant) -> u64 {
    let cancelled = all.iter().filter(|s| s.sweep(bounds, discarded_bytes, now));
    cancelled.count() as u64
}

/// Wakes readers. Must be called without holding the hub's lock.
pub(super) fn wake(readers: Vec<Arc<Subscriber>>) {
    for s in readers {
        s.waker.wake();
    }
}
