//! [`StoreLookup`]: finds the store of any resource, in any version (`versions`).
//!
//! Handlers of one resource use the stores of others (a binding updates a pod), and each store holds the
//! handlers of its resource. The lookup breaks this cycle: it exists before the stores, and handlers query it
//! per request.

use super::resource::Backing;
use super::{Context, Store};
mod versions;

use crate::admission::{Cluster, ServedKind};
use crate::apimachinery::gvk::{GroupResource, GroupVersionResource};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Str, Value};
use crate::storage::Storage;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// The stores of a server, by resource. Clones share the content.
#[derive(Clone, Default)]
pub(crate) struct StoreLookup {
    stores: Arc<ArcSwap<Stores>>,
    /// Set late, as the stores are added late: the stores of custom kinds have handlers and admission that query this
    /// lookup. Empty in a server without CustomResourceDefinitions.
    custom: Arc<OnceLock<Arc<dyn CustomKinds>>>,
}

/// A resource, and where its objects are stored.
#[derive(Clone)]
pub(crate) struct StoredResource {
    pub group: Str,
    /// A version in which it is served.
    pub version: Str,
    pub plural: Str,
    pub kind: Str,
    /// True for a namespaced resource.
    pub namespaced: bool,
    /// The objects, in any version.
    pub storage: Arc<dyn Storage>,
}

/// The kinds of CustomResourceDefinitions, whose stores come and go.
#[async_trait]
pub(crate) trait CustomKinds: Send + Sync + 'static {
    /// All kinds that are established. Opens their storages.
    async fn stored(&self) -> Vec<StoredResource>;

    /// Changes whenever a definition does.
    fn changes(&self) -> watch::Receiver<()>;

    /// The plural of a kind and whether it is namespaced.
    fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)>;

    /// The storage of a resource if it is open.
    fn peek_storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>>;

    /// The other served versions of a resource, as far as they have the subresource.
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind>;

    /// The store of a served version.
    async fn store(&self, resource: &GroupVersionResource) -> Option<Arc<Store>>;

    /// Converts an object between served versions of a resource.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    async fn convert(&self, object: Value, from: &GroupVersionResource, to: &GroupVersionResource) -> Result<Value>;
}

#[derive(Clone, Default)]
struct Stores {
    by_resource: HashMap<GroupResource, Arc<Store>>,
    by_kind: HashMap<(Str, Str), Arc<Store>>,
    by_version: HashMap<GroupVersionResource, Arc<Store>>,
    /// The versions of the objects below a key prefix.
    by_prefix: HashMap<String, Vec<Arc<Store>>>,
}

impl StoreLookup {
    /// Adds stores. If a resource has several versions, lookups return the first one added.
    pub(crate) fn add<'a>(&self, stores: impl Iterator<Item = &'a Arc<Store>> + Clone) {
        // `rcu` may run the closure several times, so it consumes nothing.
        self.stores.rcu(|now| {
            let mut next = Stores::clone(now);
            for store in stores.clone() {
                let row = store.resource();
                next.by_resource
                    .entry(row.group_resource())
                    // The first one added has precedence: versions are added in order of preference.
                    .or_insert_with(|| store.clone());
                next.by_kind
                    .entry((row.gvr.group.clone(), row.kind.clone()))
                    .or_insert_with(|| store.clone());
                next.by_version.insert(row.gvr.clone(), store.clone());
                if let Some(prefix) = row.prefix() {
                    let versions = next.by_prefix.entry(prefix.to_owned()).or_default();
                    versions.push(store.clone());
                }
            }
            next
        });
    }

    /// Sets the kinds of CustomResourceDefinitions. Later calls have no effect.
    pub(crate) fn set_custom_kinds(&self, kinds: Arc<dyn CustomKinds>) {
        let _ = self.custom.set(kinds);
    }

    /// The store of a resource, by group and plural.
    ///
    /// # Errors
    /// 503 if there is none: it is looked up by a handler that is used before all stores are built.
    pub(crate) fn get(&self, group: &str, resource: &str) -> Result<Arc<Store>> {
        self.find(group, resource)
            // The rows are fixed at start: what is missing now is not installed yet.
            .ok_or_else(|| Status::service_unavailable("the server is still starting"))
    }

    /// The storage of a stored resource, built-in or custom, without waiting. `None` for others, and for
    /// custom ones that have not been used yet.
    pub(crate) fn peek_storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
        match self.find(group, resource) {
            // Reviews and other resources without objects have a placeholder as storage.
            Some(store) => matches!(
                store.resource().backing,
                Backing::Stored { .. } | Backing::Converted { .. }
            )
            .then(|| store.storage().clone()),
            None => self.custom.get()?.peek_storage(group, resource),
        }
    }

    /// All built-in resources that have a storage of their own.
    pub(crate) fn stored(&self) -> Vec<StoredResource> {
        let stores = self.stores.load();
        let rows = stores.by_resource.values().map(|store| (store.resource(), store));
        // Converted versions share the storage of the stored one and would be counted twice.
        rows.filter(|(row, _)| matches!(row.backing, Backing::Stored { .. }))
            .map(|(row, store)| StoredResource {
                group: row.gvr.group.clone(),
                version: row.gvr.version.clone(),
                plural: row.gvr.resource.clone(),
                kind: row.kind.clone(),
                namespaced: row.namespaced,
                storage: store.storage().clone(),
            })
            .collect()
    }

    /// The kinds of CustomResourceDefinitions; `None` before they are set.
    pub(crate) fn custom_kinds(&self) -> Option<&Arc<dyn CustomKinds>> {
        self.custom.get()
    }

    fn find(&self, group: &str, resource: &str) -> Option<Arc<Store>> {
        let key = GroupResource::new(group, resource);
        self.stores.load().by_resource.get(&key).cloned()
    }
}

#[async_trait]
impl Cluster for StoreLookup {
    fn storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
        let store = self.find(group, resource)?;
        let stored = matches!(store.resource().backing, Backing::Stored { .. });
        stored.then(|| store.storage().clone())
    }

    fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        let stores = self.stores.load();
        match stores
            .by_kind
            .get(&(Str::new(group), Str::new(kind)))
            .map(|s| s.resource())
        {
            Some(row) => Some((row.gvr.resource.to_string(), row.namespaced)),
            None => self.custom.get()?.resource_of(group, kind),
        }
    }

    async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace = crate::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (name)}});
        let store = self.get("", "namespaces")?;
        store.create_value(&Context::system(""), namespace).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmitAll;
    use crate::controlplane::resource_builder::GroupVersionBuilder;
    use crate::controlplane::reviews::NoStorage;

    fn store(group: &'static str, version: &'static str, plural: &str, kind: &str) -> Arc<Store> {
        let row = GroupVersionBuilder { group, version }.kind(plural, kind);
        let row = Arc::new(row.namespaced().build());
        Arc::new(Store::new(row, Arc::new(NoStorage), Arc::new(AdmitAll)))
    }

    #[test]
    fn stores_added_later_are_found_through_earlier_clones() {
        let lookup = StoreLookup::default();
        let handler = lookup.clone();
        assert_eq!(handler.get("", "pods").err().map(|s| s.code), Some(503));
        lookup.add([&store("", "v1", "pods", "Pod")].into_iter());
        assert_eq!(handler.get("", "pods").unwrap().resource().kind, "Pod");
        assert!(handler.get("apps", "pods").is_err());
    }

    #[test]
    fn first_version_of_a_resource_is_found() {
        let lookup = StoreLookup::default();
        let scalers = |version| {
            store(
                "autoscaling",
                version,
                "horizontalpodautoscalers",
                "HorizontalPodAutoscaler",
            )
        };
        lookup.add([&scalers("v2"), &scalers("v1")].into_iter());
        let found = lookup.get("autoscaling", "horizontalpodautoscalers").unwrap();
        assert_eq!(found.resource().gvr.version, "v2");
        assert_eq!(
            lookup.resource_of("autoscaling", "HorizontalPodAutoscaler"),
            Some(("horizontalpodautoscalers".to_owned(), true))
        );
        assert_eq!(lookup.resource_of("autoscaling", "Pod"), None);
    }
}
