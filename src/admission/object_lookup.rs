//! [`ObjectLookup`]: access of plugins to other stored objects. Replaces upstream's informers and listers by reads from the
//! in-memory store.

use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::storage::{Entry, ListOptions, MinRevision, Predicate, Storage, VersionMatch};
use async_trait::async_trait;
use std::sync::Arc;

/// What plugins ask about the cluster; the registry implements it.
#[async_trait]
pub trait Cluster: Send + Sync + 'static {
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
pub struct ObjectLookup(Arc<dyn Cluster>);

/// Storage key of an object below its resource's prefix; `namespace` is empty for cluster scope.
fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

impl ObjectLookup {
    /// Looks objects up in `cluster`.
    pub fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self(cluster)
    }

    /// The plural of a kind and whether it is namespaced, for built-in kinds and CustomResourceDefinitions. `None` if
    /// there is no such kind.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn resource_of(&self, group: &str, kind: &str) -> Result<Option<(String, bool)>> {
        if let Some(known) = self.0.resource_of(group, kind) {
            return Ok(Some(known));
        }
        let described = self
            .list("apiextensions.k8s.io", "customresourcedefinitions", "")
            .await?;
        let found = described
            .iter()
            .map(|d| d.get("spec"))
            .find(|spec| spec.str_at(&["group"]) == group && spec.str_at(&["names", "kind"]) == kind);
        Ok(found.map(|spec| {
            let namespaced = spec.str_at(&["scope"]) == "Namespaced";
            (spec.str_at(&["names", "plural"]).to_owned(), namespaced)
        }))
    }

    /// As [`Cluster::create_namespace`].
    ///
    /// # Errors
    /// The error of the create.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        self.0.create_namespace(name).await
    }

    /// The storage of a resource, by group and plural.
    ///
    /// # Errors
    /// 500 if the resource is not served.
    pub fn storage(&self, group: &str, resource: &str) -> Result<Arc<dyn Storage>> {
        let found = self.0.storage(group, resource);
        found.ok_or_else(|| Status::internal(format!("admission: no storage for {resource}.{group}")))
    }

    /// A consistent read of one object; `namespace` is empty for cluster scope.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn get_latest(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found = self.entry(group, resource, namespace, name).await?;
        Ok(found.map(|(entry, _)| entry.decode()))
    }

    /// A consistent read of one object without decoding it, together with its storage; `namespace` is empty for cluster
    /// scope.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn entry(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(Arc<Entry>, Arc<dyn Storage>)>> {
        let storage = self.storage(group, resource)?;
        let got = storage.get(&key(namespace, name), MinRevision::Latest).await;
        Ok(got.map_err(Status::internal)?.map(|entry| (entry, storage)))
    }

    /// Reads one object from the cache and, only if it is absent there, consistently. Upstream's plugins do the same
    /// with their informers. A resource that is not served has no objects.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn get_cached(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let Some(storage) = self.0.storage(group, resource) else {
            return Ok(None);
        };
        if let Ok(Some(entry)) = storage.get(&key(namespace, name), MinRevision::Any).await {
            return Ok(Some(entry.decode()));
        }
        self.get_latest(group, resource, namespace, name).await
    }

    /// Lists the cached objects of a cluster-scoped resource whose encoding contains one of `marks`. Other objects are
    /// not even decoded; the caller must still check that the match is not accidental.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn list_containing(
        &self,
        group: &str,
        resource: &str,
        marks: &'static [&'static str],
    ) -> Result<Vec<Value>> {
        let has = move |entry: &crate::storage::Entry| {
            let text = std::str::from_utf8(&entry.json).unwrap_or_default();
            marks.iter().any(|mark| text.contains(mark))
        };
        let options = ListOptions {
            version: VersionMatch::NotOlderThan(MinRevision::Any),
            predicate: Predicate(Some(Arc::new(has))),
            ..ListOptions::latest("")
        };
        let Some(storage) = self.0.storage(group, resource) else {
            return Ok(Vec::new());
        };
        let entries = storage.list(options).await.map_err(Status::internal)?.entries;
        Ok(entries.iter().map(|entry| entry.decode()).collect())
    }

    /// A consistent list of all objects in a namespace (all namespaces if empty), in key order.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn list(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Value>> {
        let storage = self.storage(group, resource)?;
        let listing = storage.list(ListOptions::latest(namespace)).await;
        let entries = listing.map_err(Status::internal)?.entries;
        Ok(entries.iter().map(|entry| entry.decode()).collect())
    }
}
