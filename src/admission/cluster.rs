//! The other resources a plugin looks at: upstream's informers and listers, here reads from memory.

use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::{Context, Store};
use crate::storage::{Entry, ListOptions, MinRevision, Predicate, Storage, VersionMatch};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Storages by group and plural.
pub type Storages = HashMap<(String, String), Arc<dyn Storage>>;

/// Reads of what else is stored. Plugins are made before the stores they look at (stores have the chain), so it is
/// filled once, when all of them exist. Clones share.
#[derive(Clone, Default)]
pub struct Cluster(Arc<OnceLock<Storages>>, Arc<OnceLock<Kinds>>, Arc<OnceLock<Arc<Store>>>);

/// Plural, and whether it lives in namespaces, of built-in kinds by group and kind.
pub type Kinds = HashMap<(String, String), (String, bool)>;

/// The key of an object below its resource's prefix; `namespace` is empty for cluster scope.
fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

impl Cluster {
    /// Tells the plugins where everything is. Later calls change nothing.
    pub fn fill(&self, storages: Storages) {
        let _ = self.0.set(storages);
    }

    /// Tells the plugins what kinds there are, and where a namespace can be made. Later calls change nothing.
    pub fn fill_kinds(&self, kinds: Kinds, namespaces: Arc<Store>) {
        let _ = self.1.set(kinds);
        let _ = self.2.set(namespaces);
    }

    /// The plural of a kind, and whether it lives in namespaces; described kinds too. `None`: no such kind.
    ///
    /// # Errors
    /// 500: the store does not answer.
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

    /// Makes a namespace, as the server itself.
    ///
    /// # Errors
    /// The refusal of the create; 500: nothing is served yet.
    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let store = self.2.get();
        let store = store.ok_or_else(|| Status::internal("admission: no store of namespaces"))?;
        let namespace = crate::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (name)}});
        store.create_value(&Context::system(""), namespace).await?;
        Ok(())
    }

    /// The storage of a resource.
    ///
    /// # Errors
    /// 500: no such resource is served, or nothing is yet.
    pub fn storage(&self, group: &str, resource: &str) -> Result<&Arc<dyn Storage>> {
        let key = (group.to_owned(), resource.to_owned());
        let found = self.0.get().and_then(|all| all.get(&key));
        found.ok_or_else(|| Status::internal(format!("admission: no storage for {resource}.{group}")))
    }

    /// One object as it is now; `namespace` is empty for cluster scope.
    ///
    /// # Errors
    /// 500: the store does not answer.
    pub async fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found = self.entry(group, resource, namespace, name).await?;
        Ok(found.map(|(entry, _)| entry.decode()))
    }

    /// One object as it is now, still encoded, and where it is kept; `namespace` is empty for cluster scope.
    ///
    /// # Errors
    /// 500: the store does not answer.
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

    /// The storage of a resource, if it is served at all.
    fn served(&self, group: &str, resource: &str) -> Result<Option<&Arc<dyn Storage>>> {
        match self.0.get() {
            None => self.storage(group, resource).map(Some),
            Some(all) => Ok(all.get(&(group.to_owned(), resource.to_owned()))),
        }
    }

    /// One object: what is at hand, and only where nothing is, a read that is sure. As upstream's plugins, which look
    /// into their informers first. A resource that is not served has no objects.
    ///
    /// # Errors
    /// 500: the store does not answer.
    pub async fn find(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let Some(storage) = self.served(group, resource)? else {
            return Ok(None);
        };
        if let Ok(Some(entry)) = storage.get(&key(namespace, name), MinRevision::Any).await {
            return Ok(Some(entry.decode()));
        }
        self.get(group, resource, namespace, name).await
    }

    /// What is at hand of a resource of cluster scope and may matter: objects whose encoding has none of `marks` in it
    /// are not even decoded.
    ///
    /// # Errors
    /// 500: the store does not answer.
    pub async fn marked(&self, group: &str, resource: &str, marks: &'static [&'static str]) -> Result<Vec<Value>> {
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

    /// All objects of a namespace, or of the whole resource where it is empty, in key order.
    ///
    /// # Errors
    /// 500: the store does not answer.
    pub async fn list(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Value>> {
        let storage = self.storage(group, resource)?;
        let listing = storage.list(ListOptions::latest(namespace)).await;
        let entries = listing.map_err(Status::internal)?.entries;
        Ok(entries.iter().map(|entry| entry.decode()).collect())
    }
}
