//! The reader's side of a watch.
//!
//! ```text
//! Initial (lazily over a snapshot) ─► Live (queue)      ends: dropped by the reader, too slow, store stopped
//! Replay  (events of the ring)     ─►
//! ```
//! Bookmarks: one closes the initial state; then one about every minute and one shortly before the announced end, if the
//! revision is past the start (upstream: `cacher/watch_cache_interval.go`, `cache_watcher.go`).

use super::Cacher;
use super::hub::{Change, Subscriber, Taken};
use super::snapshot::Snapshot;
use crate::storage::interface::WatchItem;
use crate::storage::{Event, EventType, Revision, Watch};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Time between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before the announced end the last bookmark comes.
const BEFORE_END: Duration = Duration::from_secs(2);
/// Entries of the initial state taken from the snapshot at a time.
const CHUNK: usize = 256;

pub(super) enum Stage {
    Initial { state: Snapshot, cursor: Option<Box<str>> },
    Replay(std::vec::IntoIter<Arc<Event>>),
    Live,
}

pub(super) struct CacheWatch {
    cacher: Arc<Cacher>,
    subscriber: Arc<Subscriber>,
    id: u64,
    stage: Stage,
    changes: VecDeque<Change>,
    initial: VecDeque<WatchItem>,
    /// The revision closing the initial state, where that is to be told.
    initial_end: Option<Revision>,
    start: Revision,
    /// The last change that was handed out.
    handed_out: Revision,
    bookmarks: Option<Bookmarks>,
}

struct Bookmarks {
    timer: Pin<Box<Sleep>>,
    until: Option<Instant>,
    due: bool,
}

impl Bookmarks {
    fn new(until: Option<Instant>) -> Option<Self> {
        let at = Self::schedule(until)?;
        Some(Self {
            timer: Box::pin(tokio::time::sleep_until(at)),
            until,
            due: false,
        })
    }

    fn schedule(until: Option<Instant>) -> Option<Instant> {
        let now = Instant::now();
        match until {
            None => Some(now + BOOKMARK_EVERY),
            Some(end) if end <= now + BEFORE_END => None,
            Some(end) => Some((now + BOOKMARK_EVERY).min(end - BEFORE_END)),
        }
    }
}

impl CacheWatch {
    pub fn new(
        cacher: Arc<Cacher>,
        subscriber: Arc<Subscriber>,
        id: u64,
        stage: Stage,
        start: Revision,
        bookmarks: bool,
        until: Option<std::time::Instant>,
    ) -> Self {
        let initial_end = match &stage {
            Stage::Initial { .. } if bookmarks => Some(start),
            _ => None,
        };
        Self {
            cacher,
            subscriber,
            id,
            stage,
            changes: VecDeque::new(),
            initial: VecDeque::new(),
            initial_end,
            start,
            handed_out: start,
            bookmarks: if bookmarks {
                Bookmarks::new(until.map(Instant::from_std))
            } else {
                None
            },
        }
    }

    fn refill(&mut self) {
        let Stage::Initial { state, cursor } = &mut self.stage else {
            return;
        };
        let s = &self.subscriber;
        let mut last = None;
        if s.single {
            let found = state.get(&s.prefix).filter(|e| s.predicate.matches(e));
            self.initial.extend(found.cloned().map(WatchItem::Initial));
        } else {
            let from = cursor.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            for e in state.candidates(&s.predicate, &s.prefix, from) {
                if s.predicate.matches(e) {
                    self.initial.push_back(WatchItem::Initial(e.clone()));
                    if self.initial.len() == CHUNK {
                        last = Some(e.key.clone());
                        break;
                    }
                }
            }
        }
        if last.is_some() {
            *cursor = last;
            return;
        }
        self.stage = Stage::Live;
        if let Some(revision) = self.initial_end.take() {
            self.initial.push_back(WatchItem::Bookmark {
                revision,
                initial_end: true,
            });
        }
    }

    /// `Err(())`: the watch has ended.
    fn pull(&mut self) -> Result<Option<WatchItem>, ()> {
        loop {
            if let Some(item) = self.initial.pop_front() {
                return Ok(Some(item));
            }
            match &mut self.stage {
                Stage::Initial { .. } => self.refill(),
                Stage::Replay(events) => {
                    let s = &self.subscriber;
                    let seen = events.by_ref().find_map(|e| {
                        if !s.covers(&e.entry.key) {
                            return None;
                        }
                        e.seen_by(&s.predicate).map(|kind| (kind, e))
                    });
                    match seen {
                        Some((kind, event)) => return Ok(Some(self.hand_out(kind, event))),
                        None => self.stage = Stage::Live,
                    }
                }
                Stage::Live => {
                    if let Some((kind, event)) = self.changes.pop_front() {
                        return Ok(Some(self.hand_out(kind, event)));
                    }
                    // The revision is read before the queue: what it covers is then in the queue, or was taken from it.
                    let reached = self.cacher.progress.dispatched();
                    match self.subscriber.take(&mut self.changes) {
                        Taken::Some => {}
                        Taken::Ended => return Err(()),
                        Taken::Empty => return Ok(self.bookmark(reached)),
                    }
                }
            }
        }
    }

    /// Items of the initial state that are taken and not handed out.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.initial.len()
    }

    fn hand_out(&mut self, kind: EventType, event: Arc<Event>) -> WatchItem {
        self.handed_out = event.entry.revision;
        WatchItem::Change(kind, event)
    }

    fn bookmark(&mut self, reached: Revision) -> Option<WatchItem> {
        let b = self.bookmarks.as_mut()?;
        if !std::mem::take(&mut b.due) {
            return None;
        }
        match Bookmarks::schedule(b.until) {
            Some(at) => b.timer.as_mut().reset(at),
            None => self.bookmarks = None,
        }
        // A batch's first changes may be here before all of it is dispatched: a bookmark doesn't go back behind them.
        let revision = reached.max(self.handed_out);
        (revision > self.start).then_some(WatchItem::Bookmark {
            revision,
            initial_end: false,
        })
    }
}

#[async_trait]
impl Watch for CacheWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        loop {
            match self.pull() {
                Err(()) => return Poll::Ready(None),
                Ok(Some(item)) => return Poll::Ready(Some(item)),
                Ok(None) => {}
            }
            self.subscriber.register(cx.waker());
            if self.subscriber.is_ready() {
                continue;
            }
            let Some(b) = &mut self.bookmarks else {
                return Poll::Pending;
            };
            if b.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            b.due = true;
        }
    }

    fn try_next(&mut self) -> Option<WatchItem> {
        self.pull().ok().flatten()
    }
}

impl Drop for CacheWatch {
    fn drop(&mut self) {
        self.cacher.unsubscribe(self.id, &self.subscriber);
    }
}
