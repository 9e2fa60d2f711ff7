//! [`ConvertingStorage`]: the storage of one served version.

use super::reader::Reader;
use super::selection::{Reading, Selection};
use super::watch::ConvertingWatch;
use super::{Converting, KindVersions};
use crate::apimachinery::codec::json;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::storage::select::{STEPS_PER_POLL, steps};
use crate::storage::{
    Budget, ContinueToken, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Select,
    Storage, Watch, WatchOptions,
};
use crate::tasks::compute;
use async_trait::async_trait;
use std::sync::Arc;

/// Storage of one version of a kind, on top of the storage of the kind.
pub(crate) struct ConvertingStorage {
    inner: Arc<dyn Storage>,
    kind: Arc<KindVersions>,
    served: usize,
    reader: Arc<Reader>,
}

/// Objects to read per page of a list whose selector is evaluated after conversion.
const PAGE: usize = 500;
/// Memory for a list that extracts fields from stored objects.
const SCAN: usize = 1 << 20;

impl ConvertingStorage {
    /// The storage of the version with index `served`; `inner` stores the objects.
    pub(crate) fn new(inner: Arc<dyn Storage>, kind: Arc<KindVersions>, served: usize) -> Self {
        let reader = Reader::new(kind.clone(), served, inner.budget().cloned());
        Self {
            inner,
            kind,
            served,
            reader: Arc::new(reader),
        }
    }

    /// The draft to store of a draft of the served version.
    async fn stored(&self, mut draft: Draft) -> Result<Draft, Error> {
        let names = self.kind.conversion.stored_fields();
        if self.served == self.kind.stored {
            if names.is_none() {
                // Selectable fields of custom resources are not stored, because definitions may change them
                // at any time.
                // Extracted when they are needed.
                draft.fields = Box::default();
            }
            return Ok(draft);
        }
        let version = &self.kind.versions[self.kind.stored];
        // The draft was encoded by this server, so it decodes.
        let served = json::decode(&draft.json).map_err(|e| Error::Failed(e.to_string()))?;
        let objects = match self.kind.conversion.convert(vec![served], version) {
            Converting::Done(objects) => objects?,
            Converting::Pending(objects) => objects.await?,
        };
        let mut object = objects
            .into_iter()
            .next()
            .ok_or_else(|| Error::NotConverted("the conversion returned 0 objects, expected 1".to_owned()))?;
        if let Some(shape) = &version.shape {
            shape.converted(&mut object);
        }
        let fields = version.fields.as_ref().filter(|_| names.is_some());
        let fields = fields.map_or_else(Vec::new, |f| (f.extract)(&object));
        Ok(Draft::new(&object, fields))
    }

    /// The result of a write in the served version.
    async fn written(&self, written: Result<Arc<Entry>, Error>) -> Result<Arc<Entry>, Error> {
        match written {
            Ok(entry) => self.reader.one(entry).await,
            Err(Error::Conflict(Some(there))) => Err(Error::Conflict(Some(self.reader.one(there).await?))),
            Err(other) => Err(other),
        }
    }

    /// The entries of a page that pass `test`. Entries that were tested before the conversion are tested again:
    /// whether one was can have changed in between, and its extracted fields are cached.
    async fn selected(&self, page: Vec<Arc<Entry>>, test: &Arc<dyn Select>) -> Result<Vec<Arc<Entry>>, Error> {
        // The sum over the page, because all of it is tested without a pause.
        let cost: usize = page.iter().map(|e| steps(&**test, e)).sum();
        let (reader, test) = (self.reader.clone(), test.clone());
        let select = move || page.into_iter().filter(|e| reader.selects(&*test, e)).collect();
        if cost <= STEPS_PER_POLL {
            return Ok(select());
        }
        let selected = compute::offload(SCAN, async move { select() }).await;
        selected.map_err(|_| Error::NotReady(1))
    }

    /// Lists pages until `options.limit` objects pass `test`.
    async fn search(&self, mut options: ListOptions, test: Arc<dyn Select>) -> Result<Listing, Error> {
        let limit = options.limit;
        if limit > 0 {
            // Full pages even for small limits: a selector that selects little would otherwise cost a round
            // trip per object.
            options.limit = limit.max(PAGE);
        }
        let mut found: Vec<Arc<Entry>> = Vec::new();
        loop {
            let (inner, asked) = (self.inner.clone(), options.clone());
            let page = compute::offload(SCAN, async move { inner.list(asked).await }).await;
            let mut page = page.map_err(|_| Error::NotReady(1))??;
            self.reader.all(&mut page.entries).await?;
            found.extend(self.selected(page.entries, &test).await?);
            // The position is that of the first object that did not fit, not the end of the page.
            if limit > 0 && found.len() > limit {
                page.next = Some(ContinueToken {
                    revision: Some(page.revision),
                    start: found[limit].key.to_string(),
                });
                found.truncate(limit);
            }
            match page.next {
                // Without a limit the page is the whole list.
                Some(next) if limit > 0 && found.len() < limit => options.token = Some(next),
                next => {
                    return Ok(Listing {
                        entries: found,
                        revision: page.revision,
                        next,
                        // Unknown: counting would mean converting everything.
                        remaining: None,
                    });
                }
            }
        }
    }
}

#[async_trait]
impl Storage for ConvertingStorage {
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        match self.inner.get(key, min).await? {
            // The common case returns before the reader is asked for anything.
            Some(entry) if self.reader.is_served_as_stored(&entry) => Ok(Some(entry)),
            Some(entry) => self.reader.one(entry).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list(&self, mut options: ListOptions) -> Result<Listing, Error> {
        let selection = Selection::new(&self.kind, &self.reader, &options.predicate, Reading::List);
        options.predicate = selection.before;
        if let Some(test) = selection.after {
            return self.search(options, test).await;
        }
        let mut listing = self.inner.list(options).await?;
        self.reader.all(&mut listing.entries).await?;
        Ok(listing)
    }

    async fn watch(&self, mut options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        let selection = Selection::new(&self.kind, &self.reader, &options.predicate, Reading::Watch);
        options.predicate = selection.before;
        let inner = self.inner.watch(options).await?;
        Ok(Box::new(ConvertingWatch::new(
            inner,
            self.reader.clone(),
            selection.after,
        )))
    }

    async fn put(&self, key: &str, when: Precondition, draft: Draft, ttl: Option<u64>) -> Result<Arc<Entry>, Error> {
        let stored = self.stored(draft).await?;
        // Upstream compares the bytes to be written with those stored, too, and skips the write.
        if let Precondition::Unchanged(revision) = when
            // A cached state suffices: the revision shows whether it is the one the caller changed.
            && let Some(there) = self.inner.get(key, MinRevision::Any).await?
            && there.revision == revision
            && !there.stale
            && there.unversioned() == stored.json
        {
            // The stored bytes would stay the same, including their version.
            return self.reader.one(there).await;
        }
        self.written(self.inner.put(key, when, stored, ttl).await).await
    }

    async fn preview(&self, object: &Value) -> Result<Option<Value>, Error> {
        if self.served == self.kind.stored {
            return Ok(None);
        }
        // By way of the stored version, whose defaults the response to a write has as well.
        let stored = self.stored(Draft::new(object, Vec::new())).await?;
        let entry = Arc::new(stored.into_entry("", Revision::default()));
        let mut read = self.reader.one(entry).await?.decode();
        match object.resource_version() {
            "" => read.unset_meta("resourceVersion"),
            version => read.set_meta("resourceVersion", version),
        }
        Ok(Some(read))
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        self.written(self.inner.delete(key, unchanged).await).await
    }

    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn last_change(&self) -> Revision {
        self.inner.last_change()
    }

    fn last_change_in(&self, namespace: &str, since: Revision) -> Option<Revision> {
        self.inner.last_change_in(namespace, since)
    }

    fn peek_revision(&self, key: &str) -> Option<Revision> {
        self.inner.peek_revision(key)
    }

    fn count(&self) -> usize {
        self.inner.count()
    }

    fn peek_size(&self, key: &str) -> usize {
        self.inner.peek_size(key)
    }

    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes()
    }

    fn encoded_bytes(&self) -> Option<u64> {
        self.inner.encoded_bytes()
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        self.inner.budget()
    }
}
