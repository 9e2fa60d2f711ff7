//! A storage seen through a conversion: a kind that is stored in one version and served in another.
//!
//! Built-in pairs are autoscaling v1 over v2 and core Events beside events.k8s.io. Objects are converted on their way
//! out and back on their way in; keys, revisions and preconditions pass through.

use crate::apimachinery::value::{Str, Value};
use crate::storage::{
    Draft, Entry, Error, Event, EventType, ListOptions, Listing, MinRevision, Precondition, Predicate, Revision,
    Storage, Watch, WatchItem, WatchOptions,
};
use async_trait::async_trait;
use std::sync::{Arc, OnceLock};

/// Both ways between the stored and the served version. Each sets `apiVersion` and `kind`.
pub trait Conversion: Send + Sync + 'static {
    /// Stored → served.
    fn serve(&self, stored: Value) -> Value;
    /// Served → stored.
    fn store(&self, served: Value) -> Value;
    /// Selectable fields of the served version.
    fn served_fields(&self, _served: &Value) -> Vec<(Str, Str)> {
        Vec::new()
    }
    /// Selectable fields of the stored version.
    fn stored_fields(&self, _stored: &Value) -> Vec<(Str, Str)> {
        Vec::new()
    }
}

/// The storage of the served version.
pub struct Converting {
    inner: Arc<dyn Storage>,
    conversion: Arc<dyn Conversion>,
}

impl Converting {
    /// Over the storage of the stored version.
    pub fn new(inner: Arc<dyn Storage>, conversion: Arc<dyn Conversion>) -> Self {
        Self { inner, conversion }
    }

    fn predicate(&self, served: &Predicate) -> Predicate {
        let Some(test) = served.0.clone() else {
            return Predicate::default();
        };
        let conversion = self.conversion.clone();
        Predicate(Some(Arc::new(move |e: &Entry| test(&serve(&*conversion, e)))))
    }

    fn error(&self, e: Error) -> Error {
        match e {
            Error::Conflict(there) => Error::Conflict(there.map(|e| Arc::new(serve(&*self.conversion, &e)))),
            other => other,
        }
    }
}

fn serve(conversion: &dyn Conversion, entry: &Entry) -> Entry {
    let served = conversion.serve(entry.decode());
    let fields = conversion.served_fields(&served);
    Draft::new(&served, fields).into_entry(&entry.key, entry.revision)
}

#[async_trait]
impl Storage for Converting {
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        let got = self.inner.get(key, min).await?;
        Ok(got.map(|e| Arc::new(serve(&*self.conversion, &e))))
    }

    async fn list(&self, mut options: ListOptions) -> Result<Listing, Error> {
        options.predicate = self.predicate(&options.predicate);
        let mut listing = self.inner.list(options).await?;
        for entry in &mut listing.entries {
            *entry = Arc::new(serve(&*self.conversion, entry));
        }
        Ok(listing)
    }

    async fn watch(&self, mut options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        options.predicate = self.predicate(&options.predicate);
        Ok(Box::new(ConvertingWatch {
            inner: self.inner.watch(options).await?,
            conversion: self.conversion.clone(),
        }))
    }

    async fn put(&self, key: &str, when: Precondition, draft: Draft, ttl: Option<u64>) -> Result<Arc<Entry>, Error> {
        // The served bytes were just encoded here; they decode.
        let served = crate::apimachinery::codec::json::decode(&draft.json).map_err(Error::Failed)?;
        let stored = self.conversion.store(served);
        let fields = self.conversion.stored_fields(&stored);
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

    fn changed(&self) -> Revision {
        self.inner.changed()
    }

    fn count(&self) -> usize {
        self.inner.count()
    }
}

struct ConvertingWatch {
    inner: Box<dyn Watch>,
    conversion: Arc<dyn Conversion>,
}

impl ConvertingWatch {
    fn item(&self, item: WatchItem) -> WatchItem {
        match item {
            WatchItem::Initial(e) => WatchItem::Initial(Arc::new(serve(&*self.conversion, &e))),
            WatchItem::Change(t, event) => {
                // What the watcher reads is decided here; the converted event says so as a whole.
                let entry = Arc::new(serve(&*self.conversion, &event.object(t)));
                let event = Event {
                    entry,
                    previous: None,
                    deleted: t == EventType::Deleted,
                    frames: [const { OnceLock::new() }; 3],
                    protobuf_frames: OnceLock::new(),
                };
                WatchItem::Change(t, Arc::new(event))
            }
            bookmark => bookmark,
        }
    }
}

#[async_trait]
impl Watch for ConvertingWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        let item = self.inner.next().await?;
        Some(self.item(item))
    }

    fn try_next(&mut self) -> Option<WatchItem> {
        let item = self.inner.try_next()?;
        Some(self.item(item))
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
        fn served_fields(&self, v: &Value) -> Vec<(Str, Str)> {
            vec![("message".into(), v.str_at(&["message"]).into())]
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
        let served: Arc<dyn Storage> = Arc::new(Converting::new(stored.clone(), Arc::new(Renamed)));
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
        let gone = served.delete("ns/a", put.revision).await.unwrap();
        assert_eq!(gone.decode().api_version(), "v1");
        engine.shutdown();
    }
}
