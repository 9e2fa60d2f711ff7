//! [`ObjectLookup`]: access of plugins to other stored objects. Upstream's plugins read from informers; these read from
//! the watch cache, and see every write that this process has acknowledged ([`acknowledged`]). Only a write through
//! another process can be missing for as long as its watch event takes, as in an informer.

use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::{Context, Store};
use crate::storage::{Entry, Error, ListOptions, MinRevision, Predicate, Storage, VersionMatch};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Storage by group and plural.
pub type Storages = HashMap<(String, String), Arc<dyn Storage>>;

/// Reads of other stored objects. Plugins are built before the stores that they read (each store holds the chain), so
/// this is filled once all stores exist. Clones share the content.
#[derive(Clone, Default)]
pub struct ObjectLookup(Arc<OnceLock<Storages>>, Arc<OnceLock<Kinds>>, Arc<OnceLock<Arc<Store>>>);

/// Plural and scope (true: namespaced) of built-in kinds, by group and kind.
pub type Kinds = HashMap<(String, String), (String, bool)>;

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
    /// Sets the storage of all resources. Later calls have no effect.
    pub fn set_storages(&self, storages: Storages) {
        let _ = self.0.set(storages);
    }

    /// Sets the built-in kinds and the store in which namespaces are created. Later calls have no effect.
    pub fn fill_kinds(&self, kinds: Kinds, namespaces: Arc<Store>) {
        let _ = self.1.set(kinds);
        let _ = self.2.set(namespaces);
    }

    /// The plural of a kind and whether it is namespaced, for built-in kinds and CustomResourceDefinitions. `None` if
    /// there is no such kind.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn resource_of(&self, group: &str, kind: &str) -> Result<Option<(String, bool)>> {
        let key = (group.to_owned(), kind.to_owned());
        if let Some(known) = self.1.get().and_then(|kinds| kinds.get(&key)) {
            return Ok(Some(known.clone()));
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
    /// with their informers and a client. A resource that is not served has no objects.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn get_cached(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let Some(storage) = self.served(group, resource)? else {
            return Ok(None);
        };
        let found = Self::cached_entry(storage, &key(namespace, name)).await;
        Ok(found.map_err(Status::internal)?.map(|entry| entry.decode()))
    }

    /// As [`get_cached`](Self::get_cached), of a storage and without decoding.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn cached_entry(storage: &Arc<dyn Storage>, key: &str) -> std::result::Result<Option<Arc<Entry>>, Error> {
        match storage.get(key, acknowledged(storage)).await {
            Ok(Some(entry)) => Ok(Some(entry)),
            _ => storage.get(key, MinRevision::Latest).await,
        }
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
        let has = move |entry: &Entry| {
            let text = std::str::from_utf8(&entry.json).unwrap_or_default();
            marks.iter().any(|mark| text.contains(mark))
        };
        let Some(storage) = self.served(group, resource)? else {
            return Ok(Vec::new());
        };
        let options = ListOptions {
            predicate: Predicate(Some(Arc::new(has))),
            ..Self::acknowledged_in("", storage)
        };
        let entries = storage.list(options).await.map_err(Status::internal)?.entries;
        Ok(entries.iter().map(|entry| entry.decode()).collect())
    }

    /// Lists the cached objects of a namespace (of all namespaces if empty), in key order.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn list(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Value>> {
        let entries = self.list_entries(group, resource, namespace).await?;
        Ok(entries.iter().map(|entry| entry.decode()).collect())
    }

    /// As [`list`](Self::list), without decoding.
    ///
    /// # Errors
    /// 500 if the storage fails.
    pub async fn list_entries(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Arc<Entry>>> {
        let storage = self.storage(group, resource)?;
        let listing = storage.list(Self::acknowledged_in(namespace, storage)).await;
        Ok(listing.map_err(Status::internal)?.entries)
    }

    fn acknowledged_in(namespace: &str, storage: &Arc<dyn Storage>) -> ListOptions {
        ListOptions {
            version: VersionMatch::NotOlderThan(acknowledged(storage)),
            ..ListOptions::latest(namespace)
        }
    }
}
