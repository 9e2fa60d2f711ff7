//! [`CacheWatch`]: the reader's half of a watch.
//!
//! ```text
//! state  (lazily over a snapshot)  ─► live (queue)      ends: dropped by the reader, too slow, store stopped
//! replay (lazily from the ring)    ─►
//! ```
//! Bookmarks: one ends the initial state; then one about every minute, and one shortly before the announced
//! end, each only if the revision is past the start (upstream: `watch_cache_interval.go` and
//! `cache_watcher.go` in `pkg/storage/cacher`).

use super::Cacher;
use super::backlog::Next;
use super::hub::{Dequeued, Subscriber};
use crate::storage::interface::WatchItem;
use crate::storage::select::STEPS_PER_POLL;
use crate::storage::{Event, EventType, Revision, Watch};
use async_trait::async_trait;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// As upstream's `defaultBookmarkFrequency`.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before the announced end the last bookmark is sent.
const BEFORE_END: Duration = Duration::from_secs(2);
pub(super) struct CacheWatch {
    cacher: Arc<Cacher>,
    subscriber: Arc<Subscriber>,
    id: u64,
    /// True once the initial state or replay has been delivered; only the queue is left.
    is_live: bool,
    /// Remaining steps of the current poll for selecting initial objects and past changes. Shared by
    /// `poll_next` and the calls of `try_next` that follow it.
    steps: usize,
    /// The revision of the bookmark that ends the initial state, until it has been sent.
    initial_end: Option<Revision>,
    start: Revision,
    /// Revision of the last change delivered.
    handed_out: Revision,
    bookmarks: Option<Bookmarks>,
}

/// Result of one attempt to read.
enum Pulled {
    Item(WatchItem),
    Nothing,
    /// The steps of this poll were spent; poll again to continue.
    Later,
    Ended,
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
            // Too late for another one before the end.
            Some(end) if end <= now + BEFORE_END => None,
            Some(end) => Some((now + BOOKMARK_EVERY).min(end - BEFORE_END)),
        }
    }
}

impl CacheWatch {
    pub(crate) fn new(
        cacher: Arc<Cacher>,
        subscriber: Arc<Subscriber>,
        id: u64,
        has_state: bool,
        start: Revision,
        bookmarks: bool,
        until: Option<std::time::Instant>,
    ) -> Self {
        Self {
            cacher,
            subscriber,
            id,
            is_live: false,
            steps: STEPS_PER_POLL,
            initial_end: (has_state && bookmarks).then_some(start),
            start,
            handed_out: start,
            bookmarks: if bookmarks {
                Bookmarks::new(until.map(Instant::from_std))
            } else {
                None
            },
        }
    }

    fn pull(&mut self) -> Pulled {
        if !self.is_live {
            let (s, cacher, steps) = (&self.subscriber, &self.cacher, &mut self.steps);
            // The history is locked only if the replay needs its next batch.
            let next = (s.start.lock()).next(&s.scope, steps, |read| read(&cacher.history.lock()));
            match next {
                Next::Entry(entry) => return Pulled::Item(WatchItem::Initial(entry)),
                Next::Change((kind, event)) => return Pulled::Item(self.hand_out(kind, event)),
                Next::Later => return Pulled::Later,
                Next::Ended => return Pulled::Ended,
                Next::Over => self.is_live = true,
            }
        }
        // Between the initial state and the first live event, as `sendInitialEvents` promises.
        if let Some(revision) = self.initial_end.take() {
            return Pulled::Item(WatchItem::Bookmark {
                revision,
                initial_end: true,
            });
        }
        // The revision is read before the queue, so that every change it covers is already queued or
        // delivered.
        let reached = self.cacher.progress.dispatched();
        match self.subscriber.take() {
            Dequeued::Some((kind, event)) => Pulled::Item(self.hand_out(kind, event)),
            Dequeued::Ended => Pulled::Ended,
            Dequeued::Empty => self.bookmark(reached).map_or(Pulled::Nothing, Pulled::Item),
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, bool) {
        self.subscriber.held()
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
        // Changes of a batch may arrive before the whole batch counts as dispatched: a bookmark must not go
        // back behind them.
        let revision = reached.max(self.handed_out);
        // No news since the start would tell the client nothing.
        (revision > self.start).then_some(WatchItem::Bookmark {
            revision,
            initial_end: false,
        })
    }
}

#[async_trait]
impl Watch for CacheWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.steps = STEPS_PER_POLL;
        loop {
            match self.pull() {
                Pulled::Item(item) => return Poll::Ready(Some(item)),
                Pulled::Ended => return Poll::Ready(None),
                Pulled::Later => {
                    // Yields instead of going on: a selector over a huge state must not monopolise a worker.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Pulled::Nothing => {}
            }
            // Registered before the second look: an event queued between the first look and the registration
            // would wake nobody.
            self.subscriber.register(cx.waker());
            if self.subscriber.is_ready() {
                continue;
            }
            let Some(b) = &mut self.bookmarks else {
                return Poll::Pending;
            };
            // Polled only if nothing is queued: events make bookmarks unnecessary, and the timer is
            // registered with the waker.
            if b.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            b.due = true;
        }
    }

    fn try_next(&mut self) -> Option<WatchItem> {
        match self.pull() {
            Pulled::Item(item) => Some(item),
            Pulled::Nothing | Pulled::Later | Pulled::Ended => None,
        }
    }
}

impl Drop for CacheWatch {
    fn drop(&mut self) {
        // The hub holds an `Arc` of the subscriber, so it would live on.
        self.cacher.unsubscribe(self.id, &self.subscriber);
    }
}
