//! An in-memory [`Storage`] of one resource. Every watch sees every write, whatever its options.

use crate::apimachinery::value::Value;
use crate::storage::interface::WatchItem;
use crate::storage::{
    Budget, Draft, Entry, Error, Event, EventType, ListOptions, Listing, MinRevision, Precondition, Revision, Storage,
    Watch, WatchOptions,
};
use crate::sync::Mutex;
use async_trait::async_trait;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

#[derive(Default)]
pub(crate) struct MemoryStorage(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    revision: u64,
    entries: BTreeMap<String, Arc<Entry>>,
    watchers: Vec<mpsc::UnboundedSender<WatchItem>>,
}

struct MemoryWatch {
    initial: VecDeque<WatchItem>,
    changes: mpsc::UnboundedReceiver<WatchItem>,
}

impl MemoryStorage {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn set(&self, key: &str, object: &Value) {
        let mut s = self.0.lock();
        s.write(key, Some(Draft::new(object, vec![])));
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.lock().write(key, None);
    }

    pub(crate) fn object(&self, key: &str) -> Option<Value> {
        self.0.lock().entries.get(key).map(|e| e.decode())
    }

    /// Ends all watches, as a store does to a slow reader.
    pub(crate) fn cut_watches(&self) {
        self.0.lock().watchers.clear();
    }
}

impl Inner {
    fn write(&mut self, key: &str, draft: Option<Draft>) -> Option<Arc<Entry>> {
        self.revision += 1;
        let revision = Revision(self.revision);
        let previous = self.entries.get(key).cloned();
        let deleted = draft.is_none();
        let entry = match draft {
            Some(d) => Arc::new(d.into_entry(key, revision)),
            None => Arc::new(previous.as_ref()?.at_revision(revision)),
        };
        if deleted {
            self.entries.remove(key);
        } else {
            self.entries.insert(key.to_owned(), entry.clone());
        }
        let kind = match (&previous, deleted) {
            (_, true) => EventType::Deleted,
            (Some(_), false) => EventType::Modified,
            (None, false) => EventType::Added,
        };
        let event = Arc::new(Event::new(entry.clone(), previous, deleted));
        // A watch that nobody reads any more is forgotten.
        self.watchers
            .retain(|w| w.send(WatchItem::Change(kind, event.clone())).is_ok());
        Some(entry)
    }
}

#[async_trait]
impl Watch for MemoryWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        match self.initial.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None => self.changes.poll_recv(cx),
        }
    }
    fn try_next(&mut self) -> Option<WatchItem> {
        self.initial.pop_front().or_else(|| self.changes.try_recv().ok())
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    async fn get(&self, key: &str, _: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        Ok(self.0.lock().entries.get(key).cloned())
    }

    async fn list(&self, _: ListOptions) -> Result<Listing, Error> {
        let s = self.0.lock();
        Ok(Listing {
            entries: s.entries.values().cloned().collect(),
            revision: Revision(s.revision),
            next: None,
            remaining: None,
        })
    }

    async fn watch(&self, _: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        let mut s = self.0.lock();
        let (tx, changes) = mpsc::unbounded_channel();
        s.watchers.push(tx);
        let mut initial: VecDeque<_> = s.entries.values().cloned().map(WatchItem::Initial).collect();
        initial.push_back(WatchItem::Bookmark {
            revision: Revision(s.revision),
            initial_end: true,
        });
        Ok(Box::new(MemoryWatch { initial, changes }))
    }

    async fn put(&self, key: &str, when: Precondition, draft: Draft, _: Option<u64>) -> Result<Arc<Entry>, Error> {
        let mut s = self.0.lock();
        let now = s.entries.get(key).cloned();
        let holds = match when {
            Precondition::Absent => now.is_none(),
            Precondition::Unchanged(r) => now.as_ref().is_some_and(|e| e.revision == r),
        };
        if !holds {
            return Err(Error::Conflict(now));
        }
        Ok(s.write(key, Some(draft)).expect("a put always has a state"))
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        let mut s = self.0.lock();
        let now = s.entries.get(key).cloned();
        if now.as_ref().is_none_or(|e| e.revision != unchanged) {
            return Err(Error::Conflict(now));
        }
        Ok(s.write(key, None).expect("it was there"))
    }

    fn revision(&self) -> Revision {
        Revision(self.0.lock().revision)
    }

    fn count(&self) -> usize {
        self.0.lock().entries.len()
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}

/// Writes APIServices to a [`MemoryStorage`].
pub(crate) struct Writer(pub Arc<MemoryStorage>);

#[async_trait]
impl crate::aggregator::ApiServiceWriter for Writer {
    async fn set_condition(
        &self,
        name: &str,
        condition: &crate::aggregator::Condition,
    ) -> crate::apimachinery::status::Result<bool> {
        let Some(live) = self.0.object(name) else {
            return Ok(false);
        };
        let now = crate::apimachinery::time::now();
        self.0
            .set(name, &crate::aggregator::writer::with_condition(&live, condition, &now));
        Ok(crate::aggregator::writer::is_available(&live))
    }
    async fn create(&self, object: Value) -> crate::apimachinery::status::Result<()> {
        self.0.set(object.str_at(&["metadata", "name"]), &object);
        Ok(())
    }
    async fn set_spec(&self, name: &str, spec: &Value) -> crate::apimachinery::status::Result<()> {
        let mut object = self.0.object(name).unwrap();
        object.set(&["spec"], spec.clone());
        self.0.set(name, &object);
        Ok(())
    }
    async fn delete(&self, name: &str, _: &str) -> crate::apimachinery::status::Result<()> {
        self.0.remove(name);
        Ok(())
    }
}

/// Runs these futures until the returned set is dropped.
pub(crate) fn running<F>(work: impl IntoIterator<Item = F>) -> tokio::task::JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    for w in work {
        tasks.spawn(w);
    }
    tasks
}
