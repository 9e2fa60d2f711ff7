//! [`Backlog`]: the items a watch sends before live changes: an initial state, or past changes.
//!
//! Neither is copied. The state is a shared snapshot with a cursor, and past changes are read from the ring
//! in small batches, so that a watch whose client does not read uses almost no memory of its own.

use super::history::History;
use super::scope::{Change, Scope};
use super::snapshot::{Held, Snapshot};
use crate::storage::select::STEPS_PER_OBJECT;
use crate::storage::{Entry, Event, Revision};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Selected objects buffered per batch.
// A poll hands out one item; the batch spares the search from the cursor per item.
const BATCH: usize = 64;
/// Most past changes read from the ring at once, under its lock.
// Long enough to make the lock rare, short enough not to delay `apply`, which holds up all writers of the
// resource.
const MAX_READ: usize = 1024;

/// Position of a watch before its live changes.
#[derive(Default)]
pub(super) enum Backlog {
    /// Finished: continue with the queue.
    #[default]
    Over,
    /// Cancelled by a sweep; the watch ends.
    Cancelled,
    State(State),
    Replay(Replay),
}

/// The rest of the initial state.
pub(super) struct State {
    snapshot: Held,
    /// The last key examined.
    cursor: Option<Box<str>>,
    batch: VecDeque<Arc<Entry>>,
    /// [`History::discarded_bytes`] when the snapshot was current.
    discarded_at: u64,
    reads: u64,
}

/// Past changes from the ring.
pub(super) struct Replay {
    /// Changes after this revision, up to `until`, have not been read from the ring yet.
    after: Revision,
    until: Revision,
    batch: VecDeque<Arc<Event>>,
    /// [`History::discarded_bytes`] when `batch` was read.
    discarded_at: u64,
    reads: u64,
}

/// Result of [`Backlog::next`].
pub(super) enum Next {
    Entry(Arc<Entry>),
    Change(Change),
    /// The steps of this poll were spent without a match; there may be more.
    Later,
    /// Continue with the queue.
    Over,
    /// The watch has ended.
    Ended,
}

impl Backlog {
    pub(crate) fn state(snapshot: Snapshot, discarded_at: u64) -> Self {
        Self::State(State {
            snapshot: Held::new(snapshot),
            cursor: None,
            batch: VecDeque::new(),
            discarded_at,
            reads: 0,
        })
    }

    /// Past changes after `after`, up to `until`.
    pub(crate) fn replay(after: Revision, until: Revision, discarded_at: u64) -> Self {
        Self::Replay(Replay {
            after,
            until,
            batch: VecDeque::new(),
            discarded_at,
            reads: 0,
        })
    }

    /// If it keeps objects alive: the value of [`History::discarded_bytes`] since which it does.
    pub(crate) fn discarded_at(&self) -> Option<u64> {
        match self {
            Self::State(state) => Some(state.discarded_at),
            // Without a batch it refers to the ring by revision only, which keeps nothing alive.
            Self::Replay(replay) if !replay.batch.is_empty() => Some(replay.discarded_at),
            _ => None,
        }
    }

    /// Number of reads so far.
    pub(crate) fn reads(&self) -> u64 {
        match self {
            Self::State(state) => state.reads,
            Self::Replay(replay) => replay.reads,
            Self::Over | Self::Cancelled => 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::State(state) => state.batch.len(),
            Self::Replay(replay) => replay.batch.len(),
            Self::Over | Self::Cancelled => 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn has_snapshot(&self) -> bool {
        matches!(self, Self::State(_))
    }

    /// Returns the next item. `steps` is what this poll may still spend; what exceeds it waits for the next
    /// one. `history` gives access to the ring and is called only when a batch of past changes is needed.
    pub(crate) fn next(
        &mut self,
        of: &Scope,
        steps: &mut usize,
        history: impl FnOnce(&mut dyn FnMut(&History)),
    ) -> Next {
        let next = match self {
            Self::Over => return Next::Over,
            Self::Cancelled => return Next::Ended,
            Self::State(state) => state.next(of, steps),
            Self::Replay(replay) => replay.next(of, steps, history),
        };
        if matches!(next, Next::Over) {
            *self = Self::Over;
        }
        next
    }
}

/// Subtracts the cost of examining one item. An item that costs more than what is left is examined, too, so
/// that every poll makes progress.
fn spend(steps: &mut usize, cost: usize) {
    *steps = steps.saturating_sub(STEPS_PER_OBJECT + cost);
}

impl State {
    fn next(&mut self, of: &Scope, steps: &mut usize) -> Next {
        self.reads += 1;
        if let Some(entry) = self.batch.pop_front() {
            return Next::Entry(entry);
        }
        if *steps == 0 {
            return Next::Later;
        }
        if of.single {
            if self.cursor.is_some() {
                return Next::Over;
            }
            // A watch of a single object needs no scan; the cursor records that it has been looked up.
            self.cursor = Some(of.prefix.clone());
            let found = self.snapshot.get(&of.prefix).filter(|e| of.predicate.matches(e));
            return found.cloned().map_or(Next::Over, Next::Entry);
        }
        // A cursor instead of an iterator: an iterator would borrow the snapshot across polls.
        let from = self.cursor.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for entry in self.snapshot.candidates(&of.predicate, &of.prefix, from) {
            spend(steps, of.predicate.steps(entry));
            if of.predicate.matches(entry) {
                self.batch.push_back(entry.clone());
            }
            if self.batch.len() == BATCH || *steps == 0 {
                last = Some(entry.key.clone());
                break;
            }
        }
        match (last, self.batch.pop_front()) {
            (None, None) => Next::Over,
            (None, Some(entry)) => {
                // The last batch has been taken, so the snapshot can be released. `discarded_at` stays valid
                // for the batch.
                self.snapshot = Held::new(Snapshot::new(Vec::new(), self.snapshot.revision));
                Next::Entry(entry)
            }
            (last, found) => {
                self.cursor = last;
                found.map_or(Next::Later, Next::Entry)
            }
        }
    }
}

impl Replay {
    fn next(&mut self, of: &Scope, steps: &mut usize, history: impl FnOnce(&mut dyn FnMut(&History))) -> Next {
        self.reads += 1;
        if self.batch.is_empty() {
            if self.after >= self.until {
                return Next::Over;
            }
            if *steps == 0 {
                return Next::Later;
            }
            let mut read = Ok(Vec::new());
            history(&mut |history| {
                read = history.after(self.after, MAX_READ);
                self.discarded_at = history.discarded_bytes();
            });
            // The ring has discarded the position: end the watch. The client resumes and gets 410 Gone.
            let Ok(events) = read else { return Next::Ended };
            // Reading the events costs time even if none is selected.
            *steps = steps.saturating_sub(events.len());
            let last = events.last().map(|e| e.entry.revision);
            self.after = match last {
                // A short read reached the end of the ring; everything up to `until` has been seen.
                Some(last) if events.len() == MAX_READ => last,
                _ => self.until,
            };
            // The ring may already hold events after `until`, which the queue delivers as live ones.
            let wanted = |e: &Arc<Event>| e.entry.revision <= self.until && of.covers(&e.entry.key);
            self.batch.extend(events.into_iter().filter(wanted));
        }
        while *steps > 0
            && let Some(event) = self.batch.pop_front()
        {
            spend(steps, event.steps_to_see(&of.predicate));
            if let Some(kind) = event.seen_by(&of.predicate) {
                return Next::Change((kind, event));
            }
        }
        Next::Later
    }
}
