//! What happened lately to one resource: a ring of events bounded by number and time, and now and then a snapshot, from
//! which the state at any revision of the ring is made again by taking events back.
//!
//! Upstream keeps a copy of the tree per event. Its nodes would cost us some kilobytes for every event kept, so we keep
//! one per `CHECKPOINT_EVERY` events and undo at most that many to answer an exact read.

use super::snapshot::Snapshot;
use crate::storage::{Error, Event, Revision};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events between two kept snapshots.
const CHECKPOINT_EVERY: usize = 256;
/// Snapshots kept for lists that are being paged through.
const MAX_PINS: usize = 32;
/// How long a paged list can go on after its first page, whatever the ring holds.
const PIN_LIFE: Duration = Duration::from_secs(300);

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Always kept.
    pub min_events: usize,
    /// Never exceeded.
    pub max_events: usize,
    /// Bytes of memory that events may take beyond the minimum number.
    pub max_bytes: usize,
    /// Events younger than this are kept, up to the maximum.
    pub window: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            min_events: 100,
            max_events: 102_400,
            max_bytes: 64 << 20,
            window: Duration::from_secs(75),
        }
    }
}

/// A state to begin with, and the events that lead to the state wanted, to be taken back newest first.
pub struct Rewind {
    from: Snapshot,
    undo: Vec<Arc<Event>>,
    to: Revision,
}

/// What an event is counted as: the state it made, and a frame of it.
fn weight(event: &Event) -> usize {
    event.entry.footprint() + event.entry.json.len() + 256
}

pub(super) struct History {
    bounds: Bounds,
    events: VecDeque<(Instant, Arc<Event>)>,
    /// Bytes they take.
    bytes: usize,
    /// Events after this revision are all in the ring.
    base: Revision,
    checkpoints: VecDeque<Snapshot>,
    since_checkpoint: usize,
    pins: VecDeque<(Instant, Snapshot)>,
}

impl Rewind {
    /// Does the work, which needs no lock.
    pub fn run(self) -> Snapshot {
        let mut state = self.from;
        for event in self.undo.iter().rev() {
            state.undo(event);
        }
        state.revision = self.to;
        state
    }
}

impl History {
    pub fn new(bounds: Bounds, base: Revision, events: Vec<Arc<Event>>, now: Instant) -> Self {
        let bytes = events.iter().map(|e| weight(e)).sum();
        Self {
            bounds,
            bytes,
            events: events.into_iter().map(|e| (now, e)).collect(),
            base,
            checkpoints: VecDeque::new(),
            since_checkpoint: 0,
            pins: VecDeque::new(),
        }
    }

    /// Adds an event; `after` is the state with it.
    pub fn push(&mut self, now: Instant, event: Arc<Event>, after: &Snapshot) {
        self.bytes += weight(&event);
        self.events.push_back((now, event));
        self.since_checkpoint += 1;
        if self.since_checkpoint >= CHECKPOINT_EVERY {
            self.since_checkpoint = 0;
            self.checkpoints.push_back(after.clone());
        }
    }

    /// Lets go of what is out of bounds.
    pub fn trim(&mut self, now: Instant) {
        let b = self.bounds;
        while let Some((at, event)) = self.events.front() {
            let many = self.events.len() > b.max_events;
            let old = self.events.len() > b.min_events && now.saturating_duration_since(*at) > b.window;
            let large = self.events.len() > b.min_events && self.bytes > b.max_bytes;
            if !many && !old && !large {
                break;
            }
            self.base = event.entry.revision;
            self.bytes = self.bytes.saturating_sub(weight(event));
            self.events.pop_front();
        }
        if self.events.capacity() > 1024 && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to_fit();
        }
        while self.checkpoints.front().is_some_and(|s| s.revision <= self.base) {
            self.checkpoints.pop_front();
        }
        while self
            .pins
            .front()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) > PIN_LIFE)
        {
            self.pins.pop_front();
        }
    }

    /// Events, their bytes, and how many there is room for.
    pub fn figures(&self) -> (usize, usize, usize) {
        (self.events.len(), self.bytes, self.events.capacity())
    }

    /// Keeps the state of a list whose next page will be asked for.
    pub fn pin(&mut self, now: Instant, state: Snapshot) {
        if self.pins.iter().any(|(_, s)| s.revision == state.revision) {
            return;
        }
        self.pins.push_back((now, state));
        if self.pins.len() > MAX_PINS {
            self.pins.pop_front();
        }
    }

    /// Events after `since`, oldest first.
    ///
    /// # Errors
    /// [`Error::Compacted`] with the oldest revision that could be asked for.
    pub fn after(&self, since: Revision) -> Result<Vec<Arc<Event>>, Error> {
        if since < self.base {
            return Err(Error::Compacted(self.base));
        }
        let first = self.events.partition_point(|(_, e)| e.entry.revision <= since);
        Ok(self.events.range(first..).map(|(_, e)| e.clone()).collect())
    }

    /// The way to the state right after `revision`, from `current`, which is the newest.
    ///
    /// # Errors
    /// [`Error::Compacted`].
    pub fn rewind(&self, revision: Revision, current: Snapshot) -> Result<Rewind, Error> {
        let to = revision;
        if let Some((_, pin)) = self.pins.iter().find(|(_, s)| s.revision == revision) {
            return Ok(Rewind {
                from: pin.clone(),
                undo: Vec::new(),
                to,
            });
        }
        if revision < self.base {
            return Err(Error::Compacted(self.base));
        }
        let near = self.checkpoints.partition_point(|s| s.revision < revision);
        let from = self.checkpoints.get(near).cloned().unwrap_or(current);
        let first = self.events.partition_point(|(_, e)| e.entry.revision <= revision);
        let end = self.events.partition_point(|(_, e)| e.entry.revision <= from.revision);
        let undo = self.events.range(first.min(end)..end).map(|(_, e)| e.clone()).collect();
        Ok(Rewind { from, undo, to })
    }
}
