//! [`ObjectLookup`]: access of plugins to other stored objects. Upstream's plugins read from informers; these
//! read from the watch cache, and see every write that this process has acknowledged. A write through another
//! process may be missing until its watch event arrives, as in an informer.

use super::versions::{ServedKind, Versions, Wanted};
use crate::apimachinery::apply::OverlayError;
use crate::apimachinery::gvk::GroupVersionResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use crate::storage::{Entry, Error, ListOptions, MinRevision, Predicate, Storage, VersionMatch};
use crate::tasks::compute;
use async_trait::async_trait;
use std::sync::Arc;

/// The lookups that plugins need; the registry implements them.
#[async_trait]
pub(crate) trait Cluster: Versions {
    /// The storage of a resource, by group and plural. `None` if it is not served or not stored.
    fn storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>>;

    /// The plural of a served kind, and whether it is namespaced.
    fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)>;

    /// Creates a namespace as the server itself.
    ///
    /// # Errors
    /// The error of the create.
    async fn create_namespace(&self, name: &str) -> Result<()>;
}

/// Reads of other stored objects. Clones share the cluster.
#[derive(Clone)]
pub(crate) struct ObjectLookup(Arc<dyn Cluster>);

/// Storage key of an object below its resource's prefix; `namespace` is empty for cluster scope.
fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// The freshness that plugins require: every write acknowledged by this process.
fn acknowledged(storage: &Arc<dyn Storage>) -> MinRevision {
    MinRevision::AtLeast(storage.last_change())
}

impl ObjectLookup {
    /// Looks objects up in `cluster`.
    pub(crate) fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self(cluster)
    }

    /// The plural of a kind and whether it is namespaced, for built-in kinds and CustomResourceDefinitions.
    /// `None` if there is no such kind.
    pub(crate) fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        self.0.resource_of(group, kind)
    }

    /// As [`Versions::equivalents`].
    pub(crate) fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind> {
        self.0.equivalents(resource, subresource)
    }

    /// Converts an object between two versions. Objects of the same kind need no conversion: a Scale is the
    /// same in all versions of its parent.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub(crate) async fn convert(&self, object: Value, from: &ServedKind, to: &ServedKind) -> Result<Value> {
        if object.is_null() || from.kind == to.kind {
            return Ok(object);
        }
        self.0.convert(object, &from.resource, &to.resource).await
    }

    /// As [`Versions::objects`].
    ///
    /// # Errors
    /// 500 if the resource is not served in that version or the storage fails.
    pub(crate) async fn objects(
        &self,
        of: &GroupVersionResource,
        namespace: &str,
        wanted: Wanted<'_>,
    ) -> Result<Vec<Value>> {
        self.0.objects(of, namespace, wanted).await
    }

    /// As [`Versions::complete`].
    ///
    /// # Errors
    /// 400 if a value has the wrong type.
    pub(crate) async fn complete(
        &self,
        kind: &ServedKind,
        subresource: &str,
        object: &mut Value,
    ) -> Result<Vec<String>> {
        self.0.complete(kind, subresource, object).await
    }

    /// As [`Versions::overlay`].
    ///
    /// # Errors
    /// 500 or 503 if the kind is not served.
    pub(crate) async fn overlay(
        &self,
        kind: &ServedKind,
        subresource: &str,
        object: &Value,
        config: &Value,
    ) -> Result<std::result::Result<Value, OverlayError>> {
        self.0.overlay(kind, subresource, object, config).await
    }

    /// As [`Cluster::create_namespace`].
    ///
    /// # Errors
    /// The error of the create.
    pub(crate) async fn create_namespace(&self, name: &str) -> Result<()> {
        self.0.create_namespace(name).await
    }

    /// The storage of a resource, by group and plural.
    ///
    /// # Errors
    /// 500 if the resource is not served.
    pub(crate) fn storage(&self, group: &str, resource: &str) -> Result<Arc<dyn Storage>> {
        let found = self.0.storage(group, resource);
        found.ok_or_else(|| Status::internal(format!("admission: no storage for {resource}.{group}")))
    }

    /// Reads one object from the cache and, only if it is absent there, consistently. Upstream's plugins do
    /// the same with their informers and a client. A resource that is not served has no objects.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub(crate) async fn get_cached(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>> {
        let Some(storage) = self.0.storage(group, resource) else {
            return Ok(None);
        };
        let found = Self::cached_entry(&storage, &key(namespace, name)).await;
        Ok(match found.map_err(Status::internal)? {
            Some(entry) => Some(Self::decoded(&entry).await),
            None => None,
        })
    }

    /// As [`get_cached`](Self::get_cached), of a storage and without decoding.
    ///
    /// # Errors
    /// The error of the storage.
    pub(crate) async fn cached_entry(
        storage: &Arc<dyn Storage>,
        key: &str,
    ) -> std::result::Result<Option<Arc<Entry>>, Error> {
        match storage.get(key, acknowledged(storage)).await {
            Ok(Some(entry)) => Ok(Some(entry)),
            // Also after an error: the cache may be behind or restarting, while the store answers.
            _ => storage.get(key, MinRevision::Latest).await,
        }
    }

    /// Lists the cached objects of a cluster-scoped resource whose encoding contains one of `marks`. Other
    /// objects are not even decoded; the caller must still check that the match is not accidental.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub(crate) async fn list_containing(
        &self,
        group: &str,
        resource: &str,
        marks: &'static [&'static str],
    ) -> Result<Vec<Value>> {
        let has = move |entry: &Entry| {
            let json = entry.json();
            // JSON is always UTF-8; the check is needed for the type only.
            let text = std::str::from_utf8(&json).unwrap_or_default();
            marks.iter().any(|mark| text.contains(mark))
        };
        let Some(storage) = self.0.storage(group, resource) else {
            return Ok(Vec::new());
        };
        let options = ListOptions {
            predicate: Predicate(Some(Arc::new(has))),
            ..Self::acknowledged_in("", &storage)
        };
        let entries = storage.list(options).await.map_err(Status::internal)?.entries;
        Ok(Self::all_decoded(&entries).await)
    }

    /// Lists the cached objects of a namespace (of all namespaces if empty), in key order.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub(crate) async fn list(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Value>> {
        Ok(Self::all_decoded(&self.list_entries(group, resource, namespace).await?).await)
    }

    /// As [`list`](Self::list), without decoding.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub(crate) async fn list_entries(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Arc<Entry>>> {
        let storage = self.storage(group, resource)?;
        // Clients fill namespaces, and thereby choose how long a list takes.
        compute::leave_reactor_to_list(storage.count()).await;
        let listing = storage.list(Self::acknowledged_in(namespace, &storage)).await;
        Ok(listing.map_err(Status::internal)?.entries)
    }

    /// The cached objects of a storage that this process has acknowledged and `wanted` selects, in a namespace,
    /// or in all if it is empty. Others are not decoded.
    ///
    /// # Errors
    /// The error of the storage.
    pub(crate) async fn objects_in(
        storage: &Arc<dyn Storage>,
        namespace: &str,
        wanted: Wanted<'_>,
    ) -> std::result::Result<Vec<Value>, Error> {
        let entries = match wanted {
            Wanted::Name(name) => Vec::from_iter(Self::cached_entry(storage, &key(namespace, name)).await?),
            Wanted::Labels(selector) => {
                compute::leave_reactor_to_list(storage.count()).await;
                let mut entries = storage.list(Self::acknowledged_in(namespace, storage)).await?.entries;
                entries.retain(|entry| selector.matches(&|label| entry.label(label)));
                entries
            }
        };
        Ok(Self::all_decoded(&entries).await)
    }

    /// Decodes an entry, off the reactor if it is large.
    pub(crate) async fn decoded(entry: &Entry) -> Value {
        // A large entry would block the reactor's thread for milliseconds.
        compute::leave_reactor_to_decode(entry.json.len()).await;
        entry.decode()
    }

    async fn all_decoded(entries: &[Arc<Entry>]) -> Vec<Value> {
        compute::leave_reactor_to_decode(entries.iter().map(|entry| entry.json.len()).sum()).await;
        let decode = |entry: &Arc<Entry>| {
            // The sum of many small entries can be as large as one big one.
            checkpoint();
            entry.decode()
        };
        entries.iter().map(decode).collect()
    }

    fn acknowledged_in(namespace: &str, storage: &Arc<dyn Storage>) -> ListOptions {
        ListOptions {
            version: VersionMatch::NotOlderThan(acknowledged(storage)),
            ..ListOptions::latest(namespace)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::cluster;
    use crate::apimachinery::LabelSelector;
    use crate::json;
    use crate::tasks::compute::{ComputePool, Config, movable};
    use crate::telemetry::Telemetry;
    use futures_util::FutureExt as _;

    fn here() -> std::thread::ThreadId {
        std::thread::current().id()
    }

    #[tokio::test]
    async fn many_objects_are_listed_off_the_reactor() {
        let pool = ComputePool::start(Config::default(), Telemetry::new().compute.clone()).unwrap();
        let object = |n: usize| json!({"metadata": {"name": (n.to_string()), "namespace": "x"}});
        for (objects, by_label) in [(10, false), (10, true), (5000, false), (5000, true)] {
            let lookup = cluster(&[("", "configmaps", (0..objects).map(object).collect())]);
            let work = async move {
                let storage = lookup.storage("", "configmaps").unwrap();
                let selector = LabelSelector::parse("a=b").unwrap();
                let selected = Wanted::Labels(&selector);
                let listed = match by_label {
                    true => ObjectLookup::objects_in(&storage, "x", selected).await.unwrap().len(),
                    false => lookup.list_entries("", "configmaps", "x").await.unwrap().len(),
                };
                (listed, here())
            };
            let moved = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
            let (listed, place) = moved.await.unwrap();
            assert_eq!(listed, if by_label { 0 } else { objects });
            assert_eq!(place != here(), objects == 5000);
        }
    }
}
