//! [`Catalog`]: the definitions by group and plural, each with those of its versions that are in use. The informer of
//! the definitions writes it, requests read snapshots. Serving a version is left to `version`.

use super::deprecation::deprecation;
use super::terminating::Flags;
use super::version::{Builder, LazyVersion, ServedVersion, Unavailable, Unservable};
use super::{Definition, Version};
use crate::admission::ServedKind;
use crate::apimachinery::gvk::{GroupResource, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::status::{Result as StatusResult, Status};
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::extensions::conversion::declarative;
use crate::registry::{CustomKinds, Store, StoredResource};
use crate::storage::Storage;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use imbl::OrdMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// The definitions of a group by plural.
pub(super) type Group = OrdMap<Str, Arc<Defined>>;

/// All definitions. Readers see a snapshot; the informer's task is the only writer.
pub(super) struct Catalog {
    groups: ArcSwap<OrdMap<Str, Group>>,
    builder: Arc<Builder>,
    changed: watch::Sender<()>,
}

/// A definition, and its versions as far as they are in use.
pub(super) struct Defined {
    pub definition: Arc<Definition>,
    /// In the order of `definition.versions`.
    versions: Vec<Arc<LazyVersion>>,
    flags: Flags,
}

impl Defined {
    /// The next state of a definition. Versions that the change does not concern are taken over from `old`;
    /// the watches of all others end.
    fn new(definition: Arc<Definition>, old: Option<&Self>) -> Self {
        // Another UID is another object: nothing of the old one's versions or storage may be reused.
        let old = old.filter(|old| old.definition.uid == definition.uid);
        let flags = old.map_or_else(Flags::default, |old| old.flags.clone());
        // `Release` pairs with the `Acquire` of requests: a task that sees the flag also sees the state that set it.
        let terminating = definition.conditions.terminating;
        flags.terminating.store(terminating, Ordering::Release);
        let versions = match old {
            None => definition.versions.iter().map(|_| Arc::default()).collect(),
            // Conditions and metadata do not concern what is served.
            Some(old) if old.serves_as(&definition) => old.versions.clone(),
            Some(old) => old.reusable_versions(&definition),
        };
        Self {
            definition,
            versions,
            flags,
        }
    }

    fn serves_as(&self, new: &Definition) -> bool {
        // The accepted names and the rules are not part of the spec, so the generation does not cover them.
        let old = &self.definition;
        (old.generation, &old.accepted, &old.conversion_rules) == (new.generation, &new.accepted, &new.conversion_rules)
    }

    /// The versions for a changed definition: used ones whose schema and settings are the same are kept,
    /// others start over.
    fn reusable_versions(&self, definition: &Definition) -> Vec<Arc<LazyVersion>> {
        // Only used versions have something to keep, and decoding both definitions may take megabytes.
        let used = self.versions.iter().any(|v| v.is_used());
        let trees = used.then(|| (self.definition.tree(), definition.tree()));
        // Matched by name: a change may reorder the versions.
        let keep = |version: &Version| {
            let place = self.definition.versions.iter().position(|v| v.name == version.name)?;
            let lazy = self.versions.get(place).filter(|lazy| lazy.is_used())?;
            let (old, new) = trees.as_ref()?;
            let same = basis(old, &version.name) == basis(new, &version.name);
            // The deprecation warning is built into a version, but may depend on the other versions.
            (same && deprecation(&self.definition, version) == deprecation(definition, version)).then(|| lazy.clone())
        };
        definition
            .versions
            .iter()
            .map(|v| keep(v).unwrap_or_default())
            .collect()
    }

    /// Ends the watches of all versions that `next`, the state that follows, does not serve.
    fn retire(&self, next: Option<&Self>) {
        let kept = |lazy: &Arc<LazyVersion>| {
            next.is_some_and(|next| {
                let mut pairs = next.versions.iter().zip(&next.definition.versions);
                // By identity: a version of the same name may have been rebuilt.
                pairs.any(|(l, version)| version.served && Arc::ptr_eq(l, lazy))
            })
        };
        self.versions
            .iter()
            .filter(|lazy| !kept(lazy))
            .for_each(|lazy| lazy.retire());
    }

    /// A version, built if it was not used before.
    pub(crate) async fn version(
        &self,
        version: &Version,
        builder: &Arc<Builder>,
    ) -> Result<Arc<ServedVersion>, Unavailable> {
        let place = self.definition.versions.iter().position(|v| v == version);
        let lazy = place.and_then(|i| self.versions.get(i));
        // The definition and the version come from the same snapshot, so a miss means that the caller mixed two.
        let lazy = lazy.ok_or_else(|| Unavailable::Broken(Arc::new(Unservable::NoVersion(version.name.clone()))))?;
        lazy.get(builder, &self.definition, version, &self.flags).await
    }
}

#[async_trait]
impl CustomKinds for Catalog {
    async fn stored(&self) -> Vec<StoredResource> {
        let groups = self.groups.load_full();
        let mut all = Vec::new();
        for defined in groups.values().flat_map(|g| g.values()) {
            let of = &defined.definition;
            // Definitions that are not established are not served, and upstream does not track their storage either.
            if !of.conditions.established {
                continue;
            }
            // Any served version will do: encryption and migration only need to address the objects.
            let Some(version) = of.versions.iter().find(|v| v.served) else {
                continue;
            };
            let resource = GroupResource::new(&of.group, of.accepted.plural());
            let storage = self.builder.storages().get(&resource, &defined.flags.removed).await;
            let Some(storage) = storage else {
                continue;
            };
            all.push(StoredResource {
                group: of.group.clone(),
                version: version.name.clone(),
                plural: resource.resource,
                kind: of.accepted.kind().into(),
                namespaced: of.namespaced,
                storage,
            });
        }
        all
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn resource_of(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        // A linear search: kinds per group are few, and names are not indexed by kind.
        let groups = self.groups.load();
        let mut all = groups.get(group)?.values().map(|d| &d.definition);
        let found = all.find(|d| d.conditions.established && d.accepted.kind() == kind)?;
        Some((found.accepted.plural().to_owned(), found.namespaced))
    }

    fn peek_storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
        self.builder.storages().peek(&GroupResource::new(group, resource))
    }

    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind> {
        let Some(defined) = self.get(&resource.group, &resource.resource) else {
            return Vec::new();
        };
        let definition = &defined.definition;
        let others = definition
            .versions
            .iter()
            .filter(|v| v.served && v.name != resource.version);
        // Built-in kinds share `GroupVersionKind` for the subresource `status`, while `scale` has its own.
        let version = |v: &Version| {
            let kind = match subresource {
                "" => GroupVersionKind::new(&resource.group, &v.name, definition.accepted.kind()),
                "status" if v.status => GroupVersionKind::new(&resource.group, &v.name, definition.accepted.kind()),
                "scale" if v.scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
                _ => return None,
            };
            Some(ServedKind {
                resource: GroupVersionResource::new(&resource.group, &v.name, &resource.resource),
                kind,
            })
        };
        others.filter_map(version).collect()
    }

    async fn store(&self, resource: &GroupVersionResource) -> Option<Arc<Store>> {
        Some(self.served(resource).await?.store().clone())
    }

    async fn convert(
        &self,
        object: Value,
        _from: &GroupVersionResource,
        to: &GroupVersionResource,
    ) -> StatusResult<Value> {
        // Builds the target version if needed, which is why this is async.
        let served = self.served(to).await;
        let served = served.ok_or_else(|| Status::internal(format!("{} is not served", to.resource)))?;
        served.convert(object).await.map_err(|e| Status::internal(e.0))
    }
}

/// The inputs of a version. A change of anything else does not rebuild it.
fn basis<'a>(definition: &'a Value, version: &str) -> [&'a Value; 7] {
    let spec = definition.get("spec");
    let versions = spec.get("versions").items();
    let stored = versions.iter().find(|v| v.get("storage").as_bool() == Some(true));
    [
        versions
            .iter()
            .find(|v| v.str_at(&["name"]) == version)
            .unwrap_or(&Value::Null),
        // Writes are stored in the storage version, so a change of its schema concerns every version.
        stored.unwrap_or(&Value::Null),
        spec.get("scope"),
        spec.get("conversion"),
        definition.at(&["metadata", "annotations", declarative::ANNOTATION]),
        spec.get("preserveUnknownFields"),
        definition.at(&["status", "acceptedNames"]),
    ]
}

impl Catalog {
    pub(crate) fn new(builder: Builder) -> Self {
        Self {
            groups: ArcSwap::default(),
            builder: Arc::new(builder),
            changed: watch::Sender::default(),
        }
    }

    pub(crate) fn builder(&self) -> &Arc<Builder> {
        &self.builder
    }

    /// The definition of a resource.
    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<Arc<Defined>> {
        self.groups.load().get(group)?.get(plural).cloned()
    }

    /// A served version, built if it was not used before.
    async fn served(&self, resource: &GroupVersionResource) -> Option<Arc<ServedVersion>> {
        let defined = self.get(&resource.group, &resource.resource)?;
        let version = defined.definition.served(&resource.version)?;
        defined.version(version, &self.builder).await.ok()
    }

    /// The definitions of a group.
    pub(crate) fn group(&self, group: &str) -> Group {
        self.groups.load().get(group).cloned().unwrap_or_default()
    }

    /// All definitions by group.
    pub(crate) fn groups(&self) -> OrdMap<Str, Group> {
        OrdMap::clone(&self.groups.load())
    }

    /// Follows a change of a definition. Not called concurrently.
    pub(crate) fn apply(&self, change: &Change<'_, Definition>) {
        // Persistent maps: a clone is a pointer, and readers keep their snapshot.
        let mut groups = OrdMap::clone(&self.groups.load());
        // Group and plural are immutable, and the name consists of them.
        let Some(of) = change.new.or(change.old) else { return };
        let plural = of.requested.plural();
        // Inserted even if it stays empty; removed again below.
        let group = groups.entry(of.group.clone()).or_default();
        let old = group.get(plural).cloned();
        let next = change
            .new
            .map(|new| Arc::new(Defined::new(new.clone(), old.as_deref())));
        match &next {
            Some(next) => drop(group.insert(plural.into(), next.clone())),
            None => drop(group.remove(plural)),
        }
        if group.is_empty() {
            groups.remove(&of.group);
        }
        // The storage is kept while the object is the same: its custom resources stay.
        if let Some(old) = &old
            && next
                .as_ref()
                .is_none_or(|next| next.definition.uid != old.definition.uid)
        {
            // Before the next state is published: requests that find it must not get the storage that is about to end.
            let resource = GroupResource::new(&of.group, plural);
            self.builder.storages().remove(resource, &old.flags.removed);
        }
        // Published before the old watches end, so that a client that reconnects finds the new state.
        self.groups.store(Arc::new(groups));
        // No value: receivers re-read the catalog, so missed notifications do not matter.
        self.changed.send_replace(());
        let Some(old) = old else { return };
        // After publication, and not under a lock: ending watches wakes their tasks.
        old.retire(next.as_deref());
    }

    /// Closes the storages of removed definitions. Never returns.
    pub(crate) async fn close_removed(&self) {
        self.builder.storages().close_removed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::codec::json::to_vec;
    use crate::json;

    /// A definition with the storage version v1 and another version, each with a schema of this description.
    fn definition(uid: &str, generation: i64, schemas: [&str; 2]) -> Arc<Definition> {
        let version = |name: &str, schema: &str| {
            json!({"name": (name), "served": true, "storage": (name == "v1"),
                "schema": {"openAPIV3Schema": {"type": "object", "description": (schema)}}})
        };
        let versions = vec![version("v1", schemas[0]), version("v2", schemas[1])];
        let mut tree = json!({"metadata": {"name": "as.x.io", "uid": (uid), "generation": (generation)},
            "spec": {"group": "x.io", "names": {"plural": "as"}}});
        tree.set(&["spec", "versions"], versions);
        Arc::new(Definition {
            stored: bytes::Bytes::from(to_vec(&tree)).into(),
            ..Definition::from_value(&tree, 1)
        })
    }

    /// The versions of a used definition that a change keeps, after the others were retired.
    fn versions_kept(next: Arc<Definition>) -> [bool; 2] {
        let used = Defined::new(definition("u", 1, ["a", "b"]), None);
        used.versions.iter().for_each(|v| v.set_broken());
        let next = Defined::new(next, Some(&used));
        used.retire(Some(&next));
        [0, 1].map(|i| {
            let kept = Arc::ptr_eq(&used.versions[i], &next.versions[i]);
            assert_eq!(
                used.versions[i].is_retired(),
                !kept,
                "watches end with the version they read"
            );
            kept
        })
    }

    #[test]
    fn a_change_replaces_only_the_versions_it_concerns() {
        assert_eq!(
            versions_kept(definition("u", 1, ["a", "b"])),
            [true, true],
            "the spec is the same"
        );
        assert_eq!(
            versions_kept(definition("u", 2, ["a", "b"])),
            [true, true],
            "nothing served has changed"
        );
        assert_eq!(versions_kept(definition("u", 2, ["a", "c"])), [true, false]);
        assert_eq!(
            versions_kept(definition("u", 2, ["c", "b"])),
            [false, false],
            "writes end in the storage version"
        );
        assert_eq!(
            versions_kept(definition("other", 1, ["a", "b"])),
            [false, false],
            "another object"
        );
    }
}
