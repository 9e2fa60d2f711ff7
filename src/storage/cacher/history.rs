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
/// Readers of one state whose place is remembered.
const MAX_COUNTS: usize = 64;
/// How long a paged list can go on after its first page, whatever the ring holds.
const PIN_LIFE: Duration = Duration::from_secs(300);

/// Bytes that such snapshots may keep whatever the bounds.
const PINNED_ANYWAY: usize = 1 << 20;

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

/// What an event is counted as: one state, and itself. Frames of it are counted where they are kept.
fn weight(event: &Event) -> usize {
    event.entry.footprint() + size_of::<Event>() + size_of::<(Instant, Arc<Event>)>() + 16
}

/// What a kept snapshot is counted as: the nodes that the changes up to the next one make it keep for itself.
fn checkpoint_weight(of: &Snapshot) -> usize {
    /// A leaf of the tree, and its share of the nodes above.
    const NODE: usize = 640;
    CHECKPOINT_EVERY.min(of.len() / 32 + 1) * NODE
}

pub(super) struct History {
    bounds: Bounds,
    events: VecDeque<(Instant, Arc<Event>)>,
    /// Bytes they take.
    bytes: usize,
    /// Events after this revision are all in the ring.
    base: Revision,
    checkpoints: VecDeque<Snapshot>,
    checkpoint_bytes: usize,
    since_checkpoint: usize,
    pins: VecDeque<Pin>,
    /// Bytes of all events that the ring has let go of, ever.
    forgotten: u64,
}

/// The state of a list that is being paged through.
struct Pin {
    since: Instant,
    /// [`History::forgotten`] then: states that the ring has let go of since may be kept by this alone.
    forgotten: u64,
    state: Snapshot,
    /// How many objects there are below a prefix from a key on: what remains is counted for the first page, and then known.
    counts: VecDeque<Count>,
}

struct Count {
    prefix: Box<str>,
    start: Box<str>,
    objects: usize,
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
            checkpoint_bytes: 0,
            since_checkpoint: 0,
            pins: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// Adds an event; `after` is the state with it.
    pub fn push(&mut self, now: Instant, event: Arc<Event>, after: &Snapshot) {
        self.bytes += weight(&event);
        self.events.push_back((now, event));
        self.since_checkpoint += 1;
        if self.since_checkpoint >= CHECKPOINT_EVERY {
            self.since_checkpoint = 0;
            self.checkpoint_bytes += checkpoint_weight(after);
            self.checkpoints.push_back(after.clone());
        }
    }

    /// Lets go of what is out of bounds, and of what is too much for `limit` bytes in all.
    pub fn trim(&mut self, now: Instant, limit: usize) {
        let b = self.bounds;
        let max_bytes = b.max_bytes.min(limit);
        while let Some((at, event)) = self.events.front() {
            let many = self.events.len() > b.max_events;
            let old = self.events.len() > b.min_events && now.saturating_duration_since(*at) > b.window;
            let large = self.events.len() > b.min_events && self.bytes + self.checkpoint_bytes > max_bytes;
            if !many && !old && !large {
                break;
            }
            self.base = event.entry.revision;
            self.bytes = self.bytes.saturating_sub(weight(event));
            self.forgotten += weight(event) as u64;
            self.events.pop_front();
            while let Some(passed) = self.checkpoints.pop_front_if(|s| s.revision <= self.base) {
                self.checkpoint_bytes = self.checkpoint_bytes.saturating_sub(checkpoint_weight(&passed));
            }
        }
        if self.events.capacity() > 1024 && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to_fit();
        }
        let mut left = max_bytes.saturating_sub(self.bytes + self.checkpoint_bytes);
        // A small resource's pages go on even where memory is short.
        left = left.max(PINNED_ANYWAY);
        while let Some(pin) = self.pins.front()
            && (now.saturating_duration_since(pin.since) > PIN_LIFE || self.pinned() > left)
        {
            self.pins.pop_front();
        }
    }

    /// Bytes that pins alone may keep.
    fn pinned(&self) -> usize {
        self.pins.front().map_or(0, |p| (self.forgotten - p.forgotten) as usize)
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.checkpoint_bytes + self.pinned()
    }

    /// Events there is room for.
    pub fn capacity(&self) -> usize {
        self.events.capacity()
    }

    /// Events, its bytes, and how many events there is room for.
    pub fn figures(&self) -> (usize, usize, usize) {
        (self.events.len(), self.bytes(), self.capacity())
    }

    /// Keeps the state of a list whose next page will be asked for.
    pub fn pin(&mut self, now: Instant, state: Snapshot) {
        if self.pins.iter().any(|p| p.state.revision == state.revision) {
            return;
        }
        self.pins.push_back(Pin {
            since: now,
            forgotten: self.forgotten,
            state,
            counts: VecDeque::new(),
        });
        if self.pins.len() > MAX_PINS {
            self.pins.pop_front();
        }
    }

    /// How many objects there were below a prefix from a key on, if a page before has said so.
    pub fn counted(&self, revision: Revision, prefix: &str, start: &str) -> Option<usize> {
        let pin = self.pins.iter().find(|p| p.state.revision == revision)?;
        let count = pin.counts.iter().find(|c| *c.start == *start && *c.prefix == *prefix);
        count.map(|c| c.objects)
    }

    /// Remembers that, for as long as the state is kept for pages.
    pub fn note_count(&mut self, revision: Revision, prefix: &str, start: &str, objects: usize) {
        let Some(pin) = self.pins.iter_mut().find(|p| p.state.revision == revision) else {
            return;
        };
        if pin.counts.iter().any(|c| *c.start == *start && *c.prefix == *prefix) {
            return;
        }
        pin.counts.push_back(Count {
            prefix: prefix.into(),
            start: start.into(),
            objects,
        });
        if pin.counts.len() > MAX_COUNTS {
            pin.counts.pop_front();
        }
    }

    /// Bytes of all events that the ring has let go of, ever: what was current at one reading keeps at most the growth
    /// until the next from being freed.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Up to `most` events after `since`, oldest first.
    ///
    /// # Errors
    /// [`Error::Compacted`] with the oldest revision that could be asked for.
    pub fn after(&self, since: Revision, most: usize) -> Result<Vec<Arc<Event>>, Error> {
        if since < self.base {
            return Err(Error::Compacted(self.base));
        }
        let first = self.events.partition_point(|(_, e)| e.entry.revision <= since);
        Ok(self.events.range(first..).take(most).map(|(_, e)| e.clone()).collect())
    }

    /// The way to the state right after `revision`, from `current`, which is the newest.
    ///
    /// # Errors
    /// [`Error::Compacted`].
    pub fn rewind(&self, revision: Revision, current: Snapshot) -> Result<Rewind, Error> {
        let to = revision;
        if let Some(pin) = self.pins.iter().find(|p| p.state.revision == revision) {
            return Ok(Rewind {
                from: pin.state.clone(),
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
