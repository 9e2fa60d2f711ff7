//! [`ObjectLookup`]: access of plugins to other stored objects. Replaces upstream's informers and listers by reads from the
//! in-memory store.

use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::{Context, Store};
use crate::storage::{Entry, ListOptions, MinRevision, Predicate, Storage, VersionMatch};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Storage by group and plural.
pub type Storages = HashMap<(String, String), Arc<dyn Storage>>;

/// Reads of other stored objects. Plugins are built before the stores that they read (each store holds the chain), so
/// this is filled once all stores exist. Clones share the content.
#[derive(Clone, Default)]
pub struct ObjectLookup(
    Arc<OnceLock<Storages>>,
    Arc<OnceLock<Kinds>>,
    Arc<OnceLock<Arc<Store>>>,
    Arc<OnceLock<Arc<dyn CustomKinds>>>,
);

/// The kinds of CustomResourceDefinitions.
pub trait CustomKinds: Send + Sync + 'static {
    /// The plural of a kind and whether it is namespaced.
    fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)>;
}

/// Plural and scope (true: namespaced) of built-in kinds, by group and kind.
pub type Kinds = HashMap<(String, String), (String, bool)>;

/// Storage key of an object below its resource's prefix; `namespace` is empty for cluster scope.
fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

impl ObjectLookup {
    /// Sets the storage of all resources. Later calls have no effect.
    pub fn set_storages(&self, storages: Storages) {
        let _ = self.0.set(storages);
    }

    /// Sets the built-in kinds and the store in which namespaces are created. Later calls have no effect.
    pub fn fill_kinds(&self, kinds: Kinds, namespaces: Arc<Store>) {
        let _ = self.1.set(kinds);
        let _ = self.2.set(namespaces);
    }

    /// Sets the kinds of CustomResourceDefinitions. Later calls have no effect.
    pub fn fill_custom_kinds(&self, kinds: Arc<dyn CustomKinds>) {
        let _ = self.3.set(kinds);
    }

    /// The plural of a kind and whether it is namespaced, for built-in kinds and CustomResourceDefinitions. `None` if
    /// there is no such kind.
    pub fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        let key = (group.to_owned(), kind.to_owned());
        if let Some(known) = self.1.get().and_then(|kinds| kinds.get(&key)) {
            return Some(known.clone());
        }
        self.3.get()?.resource_of(group, kind)
    }

    /// Creates a namespace as the server itself.
    ///
    /// # Errors
    /// The error of the create; 500 if the stores are not set yet.
    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let store = self.2.get();
        let store = store.ok_or_else(|| Status::internal("admission: no store of namespaces"))?;
        let namespace = crate::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (name)}});
        store.create_value(&Context::system(""), namespace).await?;
        Ok(())
    }

    /// The storage of a resource, by group and plural.
    ///
    /// # Errors
    /// 500 if the resource is not served, or the stores are not set yet.
    pub fn storage(&self, group: &str, resource: &str) -> Result<&Arc<dyn Storage>> {
        let key = (group.to_owned(), resource.to_owned());
        let found = self.0.get().and_then(|all| all.get(&key));
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
    ) -> Result<Option<(Arc<Entry>, &Arc<dyn Storage>)>> {
        let storage = self.storage(group, resource)?;
        let got = storage.get(&key(namespace, name), MinRevision::Latest).await;
        Ok(got.map_err(Status::internal)?.map(|entry| (entry, storage)))
    }

    /// The storage of a resource, or `None` if it is not served.
    fn served(&self, group: &str, resource: &str) -> Result<Option<&Arc<dyn Storage>>> {
        match self.0.get() {
            None => self.storage(group, resource).map(Some),
            Some(all) => Ok(all.get(&(group.to_owned(), resource.to_owned()))),
        }
    }

    /// Reads one object from the cache and, only if it is absent there, consistently. Upstream's plugins do the same
    /// with their informers. A resource that is not served has no objects.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn get_cached(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let Some(storage) = self.served(group, resource)? else {
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
        let Some(storage) = self.served(group, resource)? else {
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
