//! [`ConvertingWatch`]: converts what the watch of the stored objects delivers, in order.
//!
//! ```text
//! item ─ nothing to convert, or cached ────────────────────► delivered
//!      └ with those already available behind it: a batch ──► one conversion ──► delivered one by one
//!                                                      └ fails: each alone; the first failure ends the watch
//! ```

use super::reader::Reader;
use super::selection::is_long;
use crate::storage::select::STEPS_PER_POLL;
use crate::storage::{Entry, Error, Event, EventType, Predicate, Select, Watch, WatchItem};
use crate::tasks::compute::{self, Current};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Most items of a batch.
const BATCH: usize = 128;
/// A batch ends with the item that reaches this many bytes.
const BATCH_BYTES: usize = 256 << 10;

pub(super) struct ConvertingWatch {
    inner: Box<dyn Watch>,
    reader: Arc<Reader>,
    /// The part of the selector that is evaluated after conversion.
    test: Option<Arc<dyn Select>>,
    /// The pool of the request. The stream is polled after its handler has returned, when there is no current
    /// one.
    pool: Option<Current>,
    converting: Option<BoxFuture<'static, VecDeque<WatchItem>>>,
    converted: VecDeque<WatchItem>,
    failed: bool,
}

impl ConvertingWatch {
    pub(crate) fn new(inner: Box<dyn Watch>, reader: Arc<Reader>, test: Option<Arc<dyn Select>>) -> Self {
        Self {
            inner,
            reader,
            test,
            // Remembered now: `current` is unknown when the stream is polled later.
            pool: compute::current(),
            converting: None,
            converted: VecDeque::new(),
            failed: false,
        }
    }

    /// Starts to convert `first` and the items that are available behind it.
    fn start(&mut self, first: WatchItem) {
        let mut size = size_of_item(&first);
        let mut items = vec![first];
        // The whole batch is tested in one poll, each item in the state before and after.
        let terms = self.test.as_ref().map_or(1, |test| 2 * test.terms());
        let most = BATCH.min(STEPS_PER_POLL / terms.max(1));
        while items.len() < most
            && size < BATCH_BYTES
            && let Some(item) = self.inner.try_next()
        {
            size += size_of_item(&item);
            items.push(item);
        }
        let (reader, test) = (self.reader.clone(), self.test.clone());
        let work = async move { convert(&reader, test.as_ref(), items).await };
        self.converting = Some(match &self.pool {
            Some(current) => current.within(work).boxed(),
            None => work.boxed(),
        });
    }

    /// The next converted item that is ready. `None` if the underlying watch is to be polled.
    fn poll_converted(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        if let Some(converting) = &mut self.converting {
            self.converted = ready!(converting.poll_unpin(cx));
            self.converting = None;
        }
        let item = self.converted.pop_front();
        if matches!(item, Some(WatchItem::Failed(_))) {
            self.failed = true;
        }
        Poll::Ready(item)
    }
}

fn size_of_item(item: &WatchItem) -> usize {
    match item {
        WatchItem::Initial(entry) => entry.json.len(),
        WatchItem::Change(_, event) => event.entry.json.len(),
        WatchItem::Bookmark { .. } | WatchItem::Failed(_) => 0,
    }
}

/// A selector of the served version, to be evaluated on served entries.
fn after_conversion(reader: &Arc<Reader>, test: &Arc<dyn Select>) -> Predicate {
    let (reader, test) = (reader.clone(), test.clone());
    Predicate(Some(Arc::new(move |e: &Entry| reader.selects(&*test, e))))
}

/// True if the entry is served as it is stored, and tested by comparing strings.
fn is_at_hand(reader: &Reader, test: &Arc<dyn Select>, entry: &Entry) -> bool {
    reader.is_served_as_stored(entry) && !is_long(&**test, entry)
}

/// The item as this version serves it, if that needs no conversion; otherwise the item itself.
fn immediate(reader: &Arc<Reader>, test: Option<&Arc<dyn Select>>, item: WatchItem) -> Result<WatchItem, WatchItem> {
    match item {
        WatchItem::Initial(entry) => {
            // An entry may have passed the test before conversion only because it had no mark yet.
            let selected = |served: &Arc<Entry>| match test {
                None => true,
                Some(test) => {
                    Arc::ptr_eq(served, &entry) && !is_long(&**test, served) && reader.selects(&**test, served)
                }
            };
            match reader.at_hand(&entry).filter(selected) {
                Some(served) => Ok(WatchItem::Initial(served)),
                None => Err(WatchItem::Initial(entry)),
            }
        }
        WatchItem::Change(t, event) => {
            // An object that stopped matching is sent in its previous state.
            let shown = event.shown(t);
            let unchanged = match (test, &event.previous) {
                // Both states decide about the type, so both must be testable without conversion.
                (Some(test), Some(previous)) if !is_at_hand(reader, test, previous) => false,
                (Some(test), _) => is_at_hand(reader, test, &event.entry),
                (None, _) => reader.is_served_as_stored(shown),
            };
            if unchanged {
                // As above, the type may come from entries that had not been tested.
                let exact = test.map_or(Some(t), |test| event.seen_by(&after_conversion(reader, test)));
                // Not selected in either state after all: the full path drops it.
                return match exact {
                    Some(t) => Ok(WatchItem::Change(t, event)),
                    None => Err(WatchItem::Change(t, event)),
                };
            }
            match event
                .encodings
                .cached_object(reader.key(Some(t)))
                // Cached without regard to a selector, so of no use where one decides about the type.
                .filter(|_| test.is_none())
            {
                Some(served) => Ok(WatchItem::Change(t, served)),
                None => Err(WatchItem::Change(t, event)),
            }
        }
        other => Ok(other),
    }
}

/// Converts items in order. Ends with [`WatchItem::Failed`] if one cannot be converted.
async fn convert(reader: &Arc<Reader>, test: Option<&Arc<dyn Select>>, items: Vec<WatchItem>) -> VecDeque<WatchItem> {
    // One call for all; it fails as a whole.
    if let Ok(converted) = convert_together(reader, test, &items).await {
        return converted;
    }
    // One object that cannot be converted fails the call for all. Those before it are delivered.
    let mut converted = VecDeque::with_capacity(items.len());
    for item in items {
        match convert_together(reader, test, std::slice::from_ref(&item)).await {
            Ok(one) => converted.extend(one),
            Err(why) => {
                converted.push_back(WatchItem::Failed(why));
                // Later items cannot be delivered: a gap would go unnoticed.
                break;
            }
        }
    }
    converted
}

async fn convert_together(
    reader: &Arc<Reader>,
    test: Option<&Arc<dyn Select>>,
    items: &[WatchItem],
) -> Result<VecDeque<WatchItem>, Error> {
    let mut entries: Vec<Arc<Entry>> = Vec::with_capacity(items.len());
    for item in items {
        match item {
            WatchItem::Initial(entry) => entries.push(entry.clone()),
            WatchItem::Change(t, event) if test.is_none() => entries.push(event.object(*t)),
            // With a selector both states are converted, since either decides about the type.
            WatchItem::Change(_, event) => {
                entries.push(event.entry.clone());
                entries.extend(event.previous.clone());
            }
            WatchItem::Bookmark { .. } | WatchItem::Failed(_) => {}
        }
    }
    reader.all(&mut entries).await?;
    if let Some(test) = test {
        reader.prepare(test, &entries).await?;
    }
    let mut entries = entries.into_iter();
    let mut next = || {
        entries
            .next()
            .expect("there is one converted entry for each that was given")
    };
    let mut served = VecDeque::with_capacity(items.len());
    for item in items {
        match (item, test) {
            (WatchItem::Initial(_), test) => {
                let entry = next();
                if test.is_none_or(|test| reader.selects(&**test, &entry)) {
                    served.push_back(WatchItem::Initial(entry));
                }
            }
            (WatchItem::Change(t, event), None) => {
                // An event is an addition for one watcher and a modification for another, by their selectors.
                // The key names the type, so that the converted event is shared by those that agree.
                let entry = next();
                let make = || Event::new(entry, None, *t == EventType::Deleted);
                let event = event.encodings.object(reader.budget(), reader.key(Some(*t)), make);
                served.push_back(WatchItem::Change(*t, event));
            }
            (WatchItem::Change(_, event), Some(test)) => {
                let entry = next();
                let previous = event.previous.is_some().then(&mut next);
                let event = Event::new(entry, previous, event.deleted);
                if let Some(t) = event.seen_by(&after_conversion(reader, test)) {
                    served.push_back(WatchItem::Change(t, Arc::new(event)));
                }
            }
            (other, _) => served.push_back(other.clone()),
        }
    }
    Ok(served)
}

#[async_trait]
impl Watch for ConvertingWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        loop {
            let converted = self.converting.is_some();
            if let Some(item) = ready!(self.poll_converted(cx)) {
                return Poll::Ready(Some(item));
            }
            if self.failed {
                return Poll::Ready(None);
            }
            if converted {
                // Nothing in this batch was selected. Yield before the next one: a watch that selects nothing
                // would otherwise convert batch after batch in a single poll.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(item) = ready!(self.inner.poll_next(cx)) else {
                return Poll::Ready(None);
            };
            match immediate(&self.reader, self.test.as_ref(), item) {
                Ok(item) => return Poll::Ready(Some(item)),
                Err(item) => self.start(item),
            }
        }
    }

    fn try_next(&mut self) -> Option<WatchItem> {
        // Pending conversions are polled again, with the task's waker, by the next `poll_next`.
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_converted(&mut cx) {
            Poll::Ready(Some(item)) => return Some(item),
            Poll::Ready(None) if !self.failed => {}
            _ => return None,
        }
        match immediate(&self.reader, self.test.as_ref(), self.inner.try_next()?) {
            Ok(item) => Some(item),
            Err(item) => {
                self.start(item);
                match self.poll_converted(&mut cx) {
                    Poll::Ready(item) => item,
                    Poll::Pending => None,
                }
            }
        }
    }
}
