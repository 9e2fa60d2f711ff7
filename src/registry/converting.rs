//! Serves a kind in a version other than the stored one.
//!
//! [`ConvertingStorage`] implements the storage interface for the served version on top of that of the stored version
//! (the
//! *hub*). Objects are converted in both directions; keys, revisions and preconditions pass through. [`ThroughHub`]
//! lets the hub's strategy prepare and validate objects of the served version, so that both versions reject the same
//! objects, with the hub's field paths. The built-in pairs are autoscaling/v1 over v2 and events.k8s.io over core
//! Events.

mod strategy;

pub use strategy::ThroughHub;

use super::resource::ExtractFields;
use crate::apimachinery::value::{Str, Value};
use crate::storage::{
    Budget, Draft, EncodingKey, Entry, Error, Event, EventType, ListOptions, Listing, MinRevision, Precondition,
    Predicate, Revision, Storage, Watch, WatchItem, WatchOptions,
};
use crate::tasks::compute::{self, Current};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Responses up to this size are converted on the calling task, larger ones on the compute pool.
const CONVERTED_IN_PLACE: usize = 32 << 10;
/// Upper bound of the memory reserved for one conversion on the compute pool.
const MEMORY: usize = 8 << 20;
/// About what converting an object allocates, by byte of its stored form: two trees and the served bytes.
const MEMORY_PER_BYTE: usize = 16;

/// Conversion between the stored and the served version. Both directions set `apiVersion` and `kind` and return
/// objects in the normalised shape of their version.
pub trait Conversion: Send + Sync + 'static {
    /// Converts from the stored to the served version.
    fn serve(&self, stored: Value) -> Value;
    /// Converts from the served to the stored version.
    fn store(&self, served: Value) -> Value;
    /// Sets the defaults that reading the object back from storage would set.
    fn complete(&self, _stored: &mut Value) {}
    /// Annotations that hold fields which only exist in the stored version.
    fn wire_annotations(&self) -> &'static [&'static str] {
        &[]
    }
    /// The served name of a selectable field of the stored version; `None` if the served version does not support it.
    fn served_field<'a>(&self, stored: &'a str) -> Option<&'a str> {
        Some(stored)
    }
}

/// Storage of the served version.
pub struct ConvertingStorage {
    inner: Arc<dyn Storage>,
    conversion: Arc<dyn Conversion>,
    /// Extracts the selectable fields of the stored version.
    stored_fields: Option<ExtractFields>,
}

impl ConvertingStorage {
    /// Wraps the storage of the stored version; `stored_fields` extracts that version's selectable fields.
    pub fn new(inner: Arc<dyn Storage>, conversion: Arc<dyn Conversion>, stored_fields: Option<ExtractFields>) -> Self {
        Self {
            inner,
            conversion,
            stored_fields,
        }
    }

    /// Translates a predicate. Selectors only use labels, names and fields, which are available without converting
    /// objects.
    fn predicate(&self, served: &Predicate) -> Predicate {
        let Some(test) = served.0.clone() else {
            return Predicate::default();
        };
        let conversion = self.conversion.clone();
        Predicate(Some(Arc::new(move |e: &Entry| {
            let fields = fields(&*conversion, e);
            test.matches(&Entry {
                fields: fields.into(),
                ..e.clone()
            })
        })))
    }

    fn error(&self, e: Error) -> Error {
        match e {
            Error::Conflict(there) => Error::Conflict(there.map(|e| Arc::new(serve(&*self.conversion, &e)))),
            other => other,
        }
    }

    /// Returns the served version of entries. Conversions are cached with the stored entries as far as the budget
    /// permits, so that later readers share them.
    async fn serve_all(&self, mut entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, Error> {
        let (conversion, budget) = (self.conversion.clone(), self.inner.budget().cloned());
        let size: usize = entries.iter().map(|e| e.json.len()).sum();
        let convert = move || {
            for e in &mut entries {
                let form = EncodingKey::Version(number(&conversion), None);
                let make = || serve(&*conversion, e);
                *e = e.encodings.entry(budget.as_ref(), form, make);
            }
            entries
        };
        if size <= CONVERTED_IN_PLACE {
            return Ok(convert());
        }
        // Large lists would block the reactor.
        let converted = compute::offload(size.min(MEMORY), async move { convert() }).await;
        // The pool is overloaded or the conversion timed out: report storage as not ready, so that the client retries.
        converted.map_err(|_| Error::NotReady(1))
    }
}

/// Identifies a conversion within the per-entry cache.
fn number(conversion: &Arc<dyn Conversion>) -> usize {
    Arc::as_ptr(conversion).cast::<()>() as usize
}

fn fields(conversion: &dyn Conversion, entry: &Entry) -> Vec<(Str, Str)> {
    let fields = entry.fields.iter();
    fields
        .filter_map(|(k, v)| conversion.served_field(k).map(|k| (Str::new(k), v.clone())))
        .collect()
}

fn serve(conversion: &dyn Conversion, entry: &Entry) -> Entry {
    let served = conversion.serve(entry.decode());
    Draft::new(&served, fields(conversion, entry)).into_entry(&entry.key, entry.revision)
}

#[async_trait]
impl Storage for ConvertingStorage {
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        match self.inner.get(key, min).await? {
            Some(e) => Ok(self.serve_all(vec![e]).await?.pop()),
            None => Ok(None),
        }
    }

    async fn list(&self, mut options: ListOptions) -> Result<Listing, Error> {
        options.predicate = self.predicate(&options.predicate);
        let mut listing = self.inner.list(options).await?;
        listing.entries = self.serve_all(listing.entries).await?;
        Ok(listing)
    }

    async fn watch(&self, mut options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        options.predicate = self.predicate(&options.predicate);
        Ok(Box::new(ConvertingWatch {
            inner: self.inner.watch(options).await?,
            conversion: self.conversion.clone(),
            budget: self.inner.budget().cloned(),
            pool: compute::current(),
            converting: None,
        }))
    }

    async fn put(&self, key: &str, when: Precondition, draft: Draft, ttl: Option<u64>) -> Result<Arc<Entry>, Error> {
        // The draft was encoded by this server, so it decodes.
        let served = crate::apimachinery::codec::json::decode(&draft.json).map_err(Error::Failed)?;
        let mut stored = self.conversion.store(served);
        self.conversion.complete(&mut stored);
        let fields = self.stored_fields.as_ref().map_or_else(Vec::new, |f| f(&stored));
        let put = self.inner.put(key, when, Draft::new(&stored, fields), ttl).await;
        put.map(|e| Arc::new(serve(&*self.conversion, &e)))
            .map_err(|e| self.error(e))
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        let gone = self.inner.delete(key, unchanged).await;
        gone.map(|e| Arc::new(serve(&*self.conversion, &e)))
            .map_err(|e| self.error(e))
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn last_change(&self) -> Revision {
        self.inner.last_change()
    }

    fn count(&self) -> usize {
        self.inner.count()
    }

    fn peek_size(&self, key: &str) -> usize {
        self.inner.peek_size(key)
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        self.inner.budget()
    }
}

/// Converts what the watch of the stored version delivers. Large objects are converted on the compute pool, one at a
/// time so that the order of events is kept.
struct ConvertingWatch {
    inner: Box<dyn Watch>,
    conversion: Arc<dyn Conversion>,
    budget: Option<Arc<Budget>>,
    /// The pool of the request. The stream is polled after its handler has returned, when there is no current one.
    pool: Option<Current>,
    /// The item that is being converted on the pool; `None`, its result: the pool gave it up.
    converting: Option<BoxFuture<'static, Option<WatchItem>>>,
}

/// The served version of an item, shared by all watchers that read the same.
fn serve_item(conversion: &Arc<dyn Conversion>, budget: Option<&Arc<Budget>>, item: WatchItem) -> WatchItem {
    match item {
        WatchItem::Initial(e) => {
            let form = EncodingKey::Version(number(conversion), None);
            let make = || serve(&**conversion, &e);
            WatchItem::Initial(e.encodings.entry(budget, form, make))
        }
        WatchItem::Change(t, event) => {
            // An event is an addition for one watcher and a modification for another, by their selectors. The form
            // names the type, so that the converted event is shared by those that agree.
            let form = EncodingKey::Version(number(conversion), Some(t));
            let make = || {
                let entry = Arc::new(serve(&**conversion, &event.object(t)));
                Event::new(entry, None, t == EventType::Deleted)
            };
            WatchItem::Change(t, event.encodings.event(budget, form, make))
        }
        bookmark => bookmark,
    }
}

impl ConvertingWatch {
    /// Returns the converted item, or `None` if its conversion was started on the pool.
    fn convert(&mut self, item: WatchItem) -> Option<WatchItem> {
        let size = match &item {
            WatchItem::Initial(e) => e.json.len(),
            WatchItem::Change(t, event) => event.object(*t).json.len(),
            _ => 0,
        };
        let pool = self.pool.as_ref().filter(|_| size > CONVERTED_IN_PLACE);
        let Some((pool, flow)) = pool.and_then(Current::pool) else {
            return Some(serve_item(&self.conversion, self.budget.as_ref(), item));
        };
        let (conversion, budget) = (self.conversion.clone(), self.budget.clone());
        let convert = async move { serve_item(&conversion, budget.as_ref(), item) };
        let memory = size.saturating_mul(MEMORY_PER_BYTE);
        self.converting = Some(async move { pool.run(flow, memory, convert).await.ok() }.boxed());
        None
    }
}

#[async_trait]
impl Watch for ConvertingWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        loop {
            if let Some(converting) = &mut self.converting {
                let item = ready!(converting.poll_unpin(cx));
                self.converting = None;
                // `None` ends the watch: the client resumes after the last event it has seen.
                return Poll::Ready(item);
            }
            let Some(item) = ready!(self.inner.poll_next(cx)) else {
                return Poll::Ready(None);
            };
            if let Some(item) = self.convert(item) {
                return Poll::Ready(Some(item));
            }
        }
    }

    fn try_next(&mut self) -> Option<WatchItem> {
        if self.converting.is_some() {
            return None;
        }
        let item = self.inner.try_next()?;
        self.convert(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::object::ObjectView;
    use crate::storage::embedded::{Engine, Options, ResourceConfig};

    struct Renamed;

    impl Conversion for Renamed {
        fn serve(&self, mut v: Value) -> Value {
            let note = v.unset(&["note"]).unwrap_or_default();
            v.set(&["message"], note);
            v.set(&["apiVersion"], "v1");
            v
        }
        fn store(&self, mut v: Value) -> Value {
            let message = v.unset(&["message"]).unwrap_or_default();
            v.set(&["note"], message);
            v.set(&["apiVersion"], "events.k8s.io/v1");
            v
        }
        fn served_field<'a>(&self, stored: &'a str) -> Option<&'a str> {
            (stored == "note").then_some("message")
        }
    }

    #[tokio::test]
    async fn two_versions_read_and_write_the_same_object() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let stored = engine.resource(ResourceConfig {
            prefix: "/registry/events/".to_owned(),
            fields: None,
        });
        let served: Arc<dyn Storage> = Arc::new(ConvertingStorage::new(
            stored.clone(),
            Arc::new(Renamed),
            Some(Arc::new(|v| vec![("note".into(), v.str_at(&["note"]).into())])),
        ));
        let v = crate::json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "m"});
        let put = served
            .put("ns/a", Precondition::Absent, Draft::new(&v, vec![]), None)
            .await
            .unwrap();
        assert_eq!(put.field("message"), Some("m"));
        let there = stored.get("ns/a", MinRevision::Latest).await.unwrap().unwrap().decode();
        assert_eq!(
            (there.api_version(), there.str_at(&["note"])),
            ("events.k8s.io/v1", "m")
        );
        let taken = served
            .put("ns/a", Precondition::Absent, Draft::new(&v, vec![]), None)
            .await;
        assert!(matches!(taken, Err(Error::Conflict(Some(e))) if e.decode().str_at(&["message"]) == "m"));
        let selected = |message: &'static str| ListOptions {
            prefix: "ns/".to_owned(),
            single: false,
            version: crate::storage::VersionMatch::NotOlderThan(MinRevision::Latest),
            predicate: Predicate(Some(Arc::new(move |e: &Entry| e.field("message") == Some(message)))),
            limit: 0,
            token: None,
        };
        assert_eq!(served.list(selected("m")).await.unwrap().entries.len(), 1);
        assert_eq!(served.list(selected("n")).await.unwrap().entries.len(), 0);
        let gone = served.delete("ns/a", put.revision).await.unwrap();
        assert_eq!(gone.decode().api_version(), "v1");
        engine.shutdown();
    }

    #[tokio::test]
    async fn conversions_are_shared_between_readers() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let stored = engine.resource(ResourceConfig {
            prefix: "/registry/events/".to_owned(),
            fields: None,
        });
        let served: Arc<dyn Storage> = Arc::new(ConvertingStorage::new(stored.clone(), Arc::new(Renamed), None));
        let watch = WatchOptions {
            prefix: String::new(),
            single: false,
            predicate: Predicate::default(),
            since: Some(Revision(1)),
            initial: None,
            bookmarks: false,
            until: None,
        };
        let (mut a, mut b) = (
            served.watch(watch.clone()).await.unwrap(),
            served.watch(watch).await.unwrap(),
        );
        let v = crate::json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "m"});
        served
            .put("ns/a", Precondition::Absent, Draft::new(&v, vec![]), None)
            .await
            .unwrap();
        let (Some(WatchItem::Change(_, x)), Some(WatchItem::Change(_, y))) = (a.next().await, b.next().await) else {
            panic!("both watchers receive the event")
        };
        assert!(Arc::ptr_eq(&x, &y), "watchers share the converted event");
        let get = async || served.get("ns/a", MinRevision::Any).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&get().await, &get().await));
        let listed = served.list(ListOptions::latest("")).await.unwrap();
        assert!(Arc::ptr_eq(&listed.entries[0], &get().await));
    }

    /// Records on which threads it runs.
    #[derive(Default)]
    struct Recorded(std::sync::Mutex<Vec<std::thread::ThreadId>>);

    impl Conversion for Recorded {
        fn serve(&self, stored: Value) -> Value {
            self.0.lock().unwrap().push(std::thread::current().id());
            stored
        }
        fn store(&self, served: Value) -> Value {
            served
        }
    }

    #[tokio::test]
    async fn large_watched_objects_are_converted_off_the_reactor_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options::default()).unwrap();
        let stored = engine.resource(ResourceConfig {
            prefix: "/registry/events/".to_owned(),
            fields: None,
        });
        let conversion = Arc::new(Recorded::default());
        let served = ConvertingStorage::new(stored.clone(), conversion.clone(), None);
        let telemetry = crate::telemetry::Telemetry::new();
        let pool = compute::ComputePool::start(compute::Config::default(), telemetry.compute.clone()).unwrap();
        let watch = WatchOptions {
            prefix: String::new(),
            single: false,
            predicate: Predicate::default(),
            since: Some(Revision(1)),
            initial: None,
            bookmarks: false,
            until: None,
        };
        let mut watch = pool.within(pool.flow("reader"), served.watch(watch)).await.unwrap();
        let long = "m".repeat(CONVERTED_IN_PLACE);
        for (name, message) in [("large", &*long), ("small", "m")] {
            let v = crate::json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "message": message});
            stored
                .put(name, Precondition::Absent, Draft::new(&v, vec![]), None)
                .await
                .unwrap();
        }
        let mut seen = Vec::new();
        for _ in 0..2 {
            let Some(WatchItem::Change(_, event)) = watch.next().await else {
                panic!("both are delivered")
            };
            seen.push(event.entry.key.to_string());
        }
        assert_eq!(seen, ["large", "small"]);
        let threads = conversion.0.lock().unwrap().clone();
        let here = std::thread::current().id();
        assert_eq!(threads.iter().map(|t| *t == here).collect::<Vec<_>>(), [false, true]);
        engine.shutdown();
    }
}
