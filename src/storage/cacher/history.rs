//! The event history: the recent events of one resource, in a ring bounded by count, bytes and age, with
//! occasional snapshots from which the state at any revision in the ring can be reconstructed by undoing
//! events.
//!
//! Upstream keeps a copy of the tree per event. The nodes of such a copy would cost several kilobytes per
//! event here, so the ring keeps one snapshot per `CHECKPOINT_EVERY` events and undoes at most that many to
//! answer an exact read.

use super::snapshot::{Held, Snapshot};
use crate::storage::budget::HistoryLimits;
use crate::storage::{Error, Event, Revision};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events between two checkpoints.
const CHECKPOINT_EVERY: usize = 256;
/// Snapshots kept for lists that are being paged through.
const MAX_PINS: usize = 32;
/// Object counts remembered per pinned snapshot.
const MAX_COUNTS_PER_PIN: usize = 64;
/// How long a paged list can continue after its first page, independent of the ring.
const PIN_LIFETIME: Duration = Duration::from_secs(300);

/// Age of events from which on their encoded frames are dropped. Watchers have sent them by then; one that
/// resumes later has them encoded again.
const FRAMES_LIFETIME: Duration = Duration::from_secs(10);

/// Bytes that pinned snapshots may use even under memory pressure.
const MIN_PINNED_BYTES: usize = 1 << 20;

/// Events that are looked at while the history is locked, for which the starts of watches wait: some 200 µs.
pub(super) const TRIMMED_AT_ONCE: usize = 1024;

/// Bounds of a history.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of events kept regardless of age, as long as they use no more than `min_bytes`.
    pub min_events: usize,
    /// Memory in bytes that events may use regardless of age. Without this bound, a hundred changes of a
    /// large object in each resource would hold gigabytes for ever.
    pub min_bytes: usize,
    /// Number of events never exceeded.
    pub max_events: usize,
    /// Memory in bytes that events beyond the minimum may use.
    pub max_bytes: usize,
    /// Events younger than this are kept, up to `max_events` and `max_bytes`.
    pub window: Duration,
    /// Memory in bytes above which only a burst is kept: events and snapshots younger than `burst_window`.
    /// Otherwise a server would hold `max_bytes` of deleted objects for as long as the window after
    /// everything is over.
    pub burst_bytes: usize,
    /// Takes the place of `burst_bytes` once there was no event for `burst_window`: the watchers that are
    /// connected have seen all events by then. The few objects left of a burst lie scattered over the
    /// allocator's pages and hold several times their size.
    pub rest_bytes: usize,
    /// See `burst_bytes` and `rest_bytes`.
    pub burst_window: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            min_events: 100,
            min_bytes: 4 << 20,
            max_events: 102_400,
            max_bytes: 64 << 20,
            window: Duration::from_secs(75),
            burst_bytes: 4 << 20,
            rest_bytes: 512 << 10,
            burst_window: Duration::from_secs(15),
        }
    }
}

/// A starting state and the events to undo, newest first, to reach revision `to`.
pub(crate) struct Rewind {
    from: Snapshot,
    undo: Vec<Arc<Event>>,
    to: Revision,
}

/// Accounted size of an event: one object state plus overhead. Cached frames are accounted by the encoding
/// cache.
fn weight(event: &Event) -> usize {
    event.entry.footprint() + size_of::<Event>() + size_of::<(Instant, Arc<Event>)>() + 16
}

/// Accounted size of a checkpoint: the tree nodes that are not shared with the next one, because changes
/// copied them.
fn checkpoint_weight(of: &Snapshot) -> usize {
    /// Approximate bytes of a tree leaf with its share of inner nodes.
    const NODE: usize = 640;
    CHECKPOINT_EVERY.min(of.len() / 32 + 1) * NODE
}

pub(super) struct History {
    bounds: Bounds,
    events: VecDeque<(Instant, Arc<Event>)>,
    /// Accounted size of `events`.
    bytes: usize,
    /// The ring holds all events after this revision.
    base: Revision,
    /// The frames of events up to this revision were dropped.
    frames_dropped: Revision,
    checkpoints: VecDeque<Snapshot>,
    checkpoint_bytes: usize,
    since_checkpoint: usize,
    pins: VecDeque<Pin>,
    /// Total accounted size of all events ever discarded. The difference of two readings bounds the memory
    /// that a snapshot taken at the first keeps alive at the second.
    discarded_bytes: u64,
}

/// The snapshot of a list that is being paged through.
pub(super) struct Pin {
    since: Instant,
    /// [`History::discarded_bytes`] at creation: objects discarded since may be kept alive by this pin alone.
    discarded_bytes: u64,
    state: Held,
    /// Number of objects from a start key on, per prefix: counted for the first page and derived for later
    /// ones.
    counts: VecDeque<Count>,
}

/// Events that a trim discarded, to be dropped without the history's lock: freeing a burst takes tens of milliseconds.
#[derive(Default)]
pub(super) struct Discarded {
    events: Vec<Arc<Event>>,
    checkpoints: Vec<Snapshot>,
    pins: Vec<Pin>,
    /// True if there is more to discard.
    pub more: bool,
}

struct Count {
    prefix: Box<str>,
    start: Box<str>,
    objects: usize,
}

impl Rewind {
    /// Undoes the events. Needs no lock, so it runs after the history's lock is released.
    pub(crate) fn run(self) -> Snapshot {
        let mut state = self.from;
        for event in self.undo.iter().rev() {
            state.undo(event);
        }
        // Undoing an event leaves the revision alone.
        state.revision = self.to;
        state
    }
}

impl History {
    pub(crate) fn new(bounds: Bounds, base: Revision, events: Vec<Arc<Event>>, now: Instant) -> Self {
        let bytes = events.iter().map(|e| weight(e)).sum();
        Self {
            bounds,
            bytes,
            // Events of before a restart count as new: their true age is unknown, and clients are about to
            // resume from them.
            events: events.into_iter().map(|e| (now, e)).collect(),
            base,
            frames_dropped: base,
            checkpoints: VecDeque::new(),
            checkpoint_bytes: 0,
            since_checkpoint: 0,
            pins: VecDeque::new(),
            discarded_bytes: 0,
        }
    }

    /// Appends an event; `after` is the state including it.
    pub(crate) fn push(&mut self, now: Instant, event: Arc<Event>, after: &Snapshot) {
        self.bytes += weight(&event);
        self.events.push_back((now, event));
        self.since_checkpoint += 1;
        if self.since_checkpoint >= CHECKPOINT_EVERY {
            self.since_checkpoint = 0;
            self.checkpoint_bytes += checkpoint_weight(after);
            // A checkpoint costs only the nodes that later changes replace.
            self.checkpoints.push_back(after.clone());
        }
    }

    /// Discards what is out of bounds, keeping the whole history within `limits` if the minimum number of
    /// events allows. At most [`TRIMMED_AT_ONCE`] events; the next call continues.
    pub(super) fn trim(&mut self, now: Instant, limits: HistoryLimits) -> Discarded {
        let mut discarded = Discarded::default();
        let b = self.bounds;
        let max_bytes = b.max_bytes.min(limits.bytes);
        let min_bytes = b.min_bytes.min(limits.min_bytes);
        // Age of the newest event, not of the store: a busy resource keeps `burst_bytes`.
        let last_event = self.events.back().map(|(at, _)| *at);
        let burst_bytes = match last_event {
            Some(at) if now.saturating_duration_since(at) > b.burst_window => b.rest_bytes,
            _ => b.burst_bytes,
        };
        while let Some((at, event)) = self.events.front() {
            let many = self.events.len() > b.max_events;
            let above_minimum = self.events.len() > b.min_events || self.bytes > min_bytes;
            let window = if self.bytes + self.checkpoint_bytes > burst_bytes {
                b.burst_window
            } else {
                b.window
            };
            let old = above_minimum && now.saturating_duration_since(*at) > window;
            let large = above_minimum && self.bytes + self.checkpoint_bytes > max_bytes;
            if !many && !old && !large {
                break;
            }
            if discarded.events.len() == TRIMMED_AT_ONCE {
                discarded.more = true;
                return discarded;
            }
            // Watches and lists from before this revision now get 410 Gone.
            self.base = event.entry.revision;
            self.bytes = self.bytes.saturating_sub(weight(event));
            self.discarded_bytes += weight(event) as u64;
            discarded.events.extend(self.events.pop_front().map(|(_, event)| event));
            while let Some(passed) = self.checkpoints.pop_front_if(|s| s.revision <= self.base) {
                self.checkpoint_bytes = self.checkpoint_bytes.saturating_sub(checkpoint_weight(&passed));
                discarded.checkpoints.push(passed);
            }
        }
        // The ring grows for bursts; memory is returned once it is mostly empty.
        // Deques never shrink by themselves; the factor of 4 leaves room, so that the next burst does not
        // reallocate at once.
        if self.events.capacity() > 1024 && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to_fit();
        }
        let mut left = max_bytes.saturating_sub(self.bytes + self.checkpoint_bytes);
        // Paging through a small resource continues even under memory pressure.
        left = left.max(MIN_PINNED_BYTES);
        while let Some(pin) = self.pins.front() {
            let age = now.saturating_duration_since(pin.since);
            // Pins are in order of creation and the bound is that of the oldest, so dropping from the front
            // lowers it.
            let pinned = self.pinned();
            if age <= PIN_LIFETIME && pinned <= left && (pinned <= burst_bytes || age <= b.burst_window) {
                break;
            }
            discarded.pins.extend(self.pins.pop_front());
        }
        discarded
    }

    /// Drops the encoded frames of events that watchers have sent long ago. Visits each event once, and at most
    /// [`TRIMMED_AT_ONCE`] of them; returns whether there may be more.
    pub(crate) fn drop_frames(&mut self, now: Instant) -> bool {
        let first = self
            .events
            .partition_point(|(_, event)| event.entry.revision <= self.frames_dropped);
        let old = |at: &Instant| now.saturating_duration_since(*at) > FRAMES_LIFETIME;
        let mut visited = 0;
        let of_old = self.events.range(first..).take_while(|(at, _)| old(at));
        for (_, event) in of_old.take(TRIMMED_AT_ONCE) {
            event.encodings.clear();
            self.frames_dropped = event.entry.revision;
            visited += 1;
        }
        visited == TRIMMED_AT_ONCE
    }

    /// Upper bound of the bytes that only pins keep alive: what was discarded since the oldest pin.
    fn pinned(&self) -> usize {
        self.pins
            .front()
            .map_or(0, |p| (self.discarded_bytes - p.discarded_bytes) as usize)
    }

    /// Accounted size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.checkpoint_bytes + self.pinned()
    }

    /// Number of events the ring has allocated space for.
    pub(crate) fn capacity(&self) -> usize {
        self.events.capacity()
    }

    /// Number of events, accounted bytes, and capacity.
    pub(crate) fn stats(&self) -> (usize, usize, usize) {
        (self.events.len(), self.bytes(), self.capacity())
    }

    /// Keeps the snapshot of a list that will be continued. Returns the pin that it displaces, to be dropped without
    /// the lock.
    pub(super) fn pin(&mut self, now: Instant, state: Snapshot) -> Option<Pin> {
        // Several clients page through the same revision; they share one pin.
        if self.pins.iter().any(|p| p.state.revision == state.revision) {
            return None;
        }
        self.pins.push_back(Pin {
            since: now,
            discarded_bytes: self.discarded_bytes,
            state: Held::new(state),
            counts: VecDeque::new(),
        });
        // Oldest first: it keeps most alive and its client has had the longest time.
        match self.pins.len() > MAX_PINS {
            true => self.pins.pop_front(),
            false => None,
        }
    }

    /// Returns the number of objects below `prefix` from `start` on, if an earlier page recorded it.
    pub(crate) fn counted(&self, revision: Revision, prefix: &str, start: &str) -> Option<usize> {
        let pin = self.pins.iter().find(|p| p.state.revision == revision)?;
        let count = pin.counts.iter().find(|c| *c.start == *start && *c.prefix == *prefix);
        count.map(|c| c.objects)
    }

    /// Records that number for as long as the snapshot is pinned.
    pub(crate) fn note_count(&mut self, revision: Revision, prefix: &str, start: &str, objects: usize) {
        let Some(pin) = self.pins.iter_mut().find(|p| p.state.revision == revision) else {
            return;
        };
        // A retried page would otherwise fill the list with copies.
        if pin.counts.iter().any(|c| *c.start == *start && *c.prefix == *prefix) {
            return;
        }
        pin.counts.push_back(Count {
            prefix: prefix.into(),
            start: start.into(),
            objects,
        });
        if pin.counts.len() > MAX_COUNTS_PER_PIN {
            pin.counts.pop_front();
        }
    }

    /// Total accounted size of all events ever discarded; see the field.
    pub(crate) fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes
    }

    /// Returns up to `most` events after `since`, oldest first.
    ///
    /// # Errors
    /// [`Error::Compacted`] with the oldest revision that is still available.
    pub(crate) fn after(&self, since: Revision, most: usize) -> Result<Vec<Arc<Event>>, Error> {
        if since < self.base {
            // 410 Gone: the client lists again.
            return Err(Error::Compacted(self.base));
        }
        let first = self.events.partition_point(|(_, e)| e.entry.revision <= since);
        Ok(self.events.range(first..).take(most).map(|(_, e)| e.clone()).collect())
    }

    /// The events after `since`, newest first; `None` if some were discarded, or if there are too many to visit under
    /// the lock.
    pub(super) fn newest_after(&self, since: Revision) -> Option<impl Iterator<Item = &Event>> {
        let first = self.events.partition_point(|(_, e)| e.entry.revision <= since);
        let known = since >= self.base && self.events.len() - first <= TRIMMED_AT_ONCE;
        known.then(|| self.events.range(first..).rev().map(|(_, e)| &**e))
    }

    /// Prepares the reconstruction of the state at `revision`, given the current state.
    ///
    /// # Errors
    /// [`Error::Compacted`] if events after `revision` have been discarded and no pin holds it.
    pub(crate) fn rewind(&self, revision: Revision, current: Snapshot) -> Result<Rewind, Error> {
        let to = revision;
        // Pins first: one may outlive the ring.
        if let Some(pin) = self.pins.iter().find(|p| p.state.revision == revision) {
            return Ok(Rewind {
                from: Snapshot::clone(&pin.state),
                undo: Vec::new(),
                to,
            });
        }
        if revision < self.base {
            return Err(Error::Compacted(self.base));
        }
        // The nearest checkpoint at or after the revision needs the fewest events undone.
        let near = self.checkpoints.partition_point(|s| s.revision < revision);
        let from = self.checkpoints.get(near).cloned().unwrap_or(current);
        let first = self.events.partition_point(|(_, e)| e.entry.revision <= revision);
        let end = self.events.partition_point(|(_, e)| e.entry.revision <= from.revision);
        let undo = self.events.range(first.min(end)..end).map(|(_, e)| e.clone()).collect();
        Ok(Rewind { from, undo, to })
    }
}
