//! Discovery of custom resources: the documents of groups and versions, computed from the established
//! definitions, and their parts of aggregated discovery and OpenAPI.

use super::catalog::{Catalog, Defined, Group};
use super::published::published;
use super::version::Builder;
use super::{Definition, Version};
use crate::apimachinery::codec::json::pieces::Pieces;
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::endpoints::discovery::aggregated::{self, Priorities, Source};
use crate::endpoints::discovery::resources::{self, Described};
use crate::endpoints::discovery::{api_group, compare_versions};
use crate::endpoints::install::PublishedDocuments;
use crate::endpoints::openapi::v2::ServedResources;
use crate::endpoints::openapi::{v3, write_group_version};
use crate::extensions::naming::Names;
use crate::registry::{Resource, Verbs};
use crate::sync::Mutex;
use crate::tasks::{Signal, off_thread};
use crate::telemetry::Telemetry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Position of custom resources among all groups, as upstream's.
const PRIORITIES: Priorities = Priorities {
    group: 1000,
    version: 100,
};
/// The verbs while the definition is being deleted.
const TERMINATING: Verbs = Verbs::ALL
    .without(Verbs::CREATE)
    .without(Verbs::UPDATE)
    .without(Verbs::PATCH);

/// The established definitions that serve a version, with that version.
fn serving<'a>(group: &'a Group, version: &'a str) -> impl Iterator<Item = (&'a Definition, &'a Version)> {
    let established = group
        .values()
        .map(|d| &*d.definition)
        .filter(|d| d.conditions.established);
    established.filter_map(move |d| d.served(version).map(|v| (d, v)))
}

/// The served versions of a group in order of preference.
fn versions(group: &Group) -> Vec<&str> {
    by_version(group).into_iter().map(|(name, _)| name).collect()
}

/// The served versions of a group in order of preference, each with the established definitions that serve
/// it.
fn by_version(group: &Group) -> Vec<(&str, Vec<(&Arc<Defined>, &Version)>)> {
    let mut found: HashMap<&str, Vec<(&Arc<Defined>, &Version)>> = HashMap::new();
    for d in group.values().filter(|d| d.definition.conditions.established) {
        for version in d.definition.versions.iter().filter(|v| v.served) {
            found.entry(&version.name).or_default().push((d, version));
        }
    }
    let mut all: Vec<_> = found.into_iter().collect();
    // Reversed arguments: the preferred version comes first.
    all.sort_by(|(a, _), (b, _)| compare_versions(b, a));
    all
}

/// `/apis/<group>`, or `None` if no established definition serves the group.
pub(super) fn group(name: &str, group: &Group) -> Option<Value> {
    let versions = versions(group);
    (!versions.is_empty()).then(|| api_group(name, &versions))
}

/// `/apis/<group>/<version>`, or `None` if no established definition serves it.
pub(super) fn version(name: &str, version: &str, group: &Group) -> Option<Value> {
    // Without any definition the version does not exist, which is a 404 and not an empty list.
    serving(group, version).next()?;
    let rows = serving(group, version).map(|(d, v)| described(d, v));
    Some(resources::list(&GroupVersion::new(name, version), rows))
}

fn described<'a>(definition: &'a Definition, version: &Version) -> Described<'a> {
    let names = &definition.accepted;
    let kind = GroupVersionKind::new(&definition.group, &version.name, names.kind());
    let mut subresources = Vec::new();
    if version.status {
        subresources.push(("status", kind.clone(), Verbs::GET_PATCH_UPDATE));
    }
    if version.scale {
        let scale = GroupVersionKind::new("autoscaling", "v1", "Scale");
        subresources.push(("scale", scale, Verbs::GET_PATCH_UPDATE));
    }
    Described {
        kind,
        plural: names.plural(),
        singular: names.singular(),
        short_names: names.short(),
        categories: names.categories(),
        namespaced: definition.namespaced,
        // A terminating definition refuses new objects, so discovery must not offer those verbs.
        verbs: match definition.conditions.terminating {
            true => TERMINATING,
            false => Verbs::ALL,
        },
        custom: true,
        storage_version_hash: definition.storage_version_hash(),
        subresources,
    }
}

/// Publishes the groups in aggregated discovery and OpenAPI, whenever a definition changes.
pub(super) struct Discovery {
    catalog: Arc<Catalog>,
    published: PublishedDocuments,
    telemetry: Telemetry,
    /// Groups whose definitions have changed.
    changed: Mutex<HashSet<Str>>,
    notify: Notify,
}

impl Discovery {
    pub(crate) fn new(catalog: Arc<Catalog>, published: PublishedDocuments, telemetry: Telemetry) -> Self {
        Self {
            catalog,
            published,
            telemetry,
            changed: Mutex::default(),
            notify: Notify::new(),
        }
    }

    /// Notes a change. Several changes of a group are published together.
    pub(crate) fn note(&self, change: &Change<'_, Definition>) {
        if let Some(of) = change.new.or(change.old) {
            // The lock is only held for the insert; publishing happens in `run`.
            self.changed.lock().insert(of.group.clone());
            // One permit is enough: `run` takes all changed groups at once.
            self.notify.notify_one();
        }
    }

    /// Publishes changes, once the definitions are known. Returns only when the process is ending.
    pub(crate) async fn run(self: Arc<Self>, synced: Signal) {
        // Before the first list is complete, groups would appear incomplete and then change.
        synced.wait().await;
        let mut shown: HashMap<Str, PublishedGroup> = HashMap::new();
        loop {
            // The guard is dropped within the statement, so nothing is held across the awaits below.
            let changed = std::mem::take(&mut *self.changed.lock());
            let mut documents_changed = false;
            for name in changed {
                // Taken out and put back: a group without versions leaves no entry.
                let before = shown.remove(&name).unwrap_or_default();
                // A group may have a thousand definitions, so documents are built off the reactor.
                let (own, group) = (self.clone(), name.clone());
                let published = off_thread(0, move || {
                    let now = own.publish(&group, &own.catalog.group(&group), &before);
                    (now != before, now)
                });
                // The process is ending.
                let Some((changed, now)) = published.await else { return };
                documents_changed |= changed;
                if !now.is_empty() {
                    shown.insert(name, now);
                }
            }
            // Once per round: the document of all groups is the costliest one.
            if documents_changed {
                self.publish_openapi_v2();
            }
            // A change noted meanwhile has left a permit, so this returns at once.
            self.notify.notified().await;
        }
    }

    fn publish(&self, name: &str, group: &Group, before: &PublishedGroup) -> PublishedGroup {
        let mut now = BTreeMap::new();
        for (version, serving) in by_version(group) {
            let gv = GroupVersion::new(name, version);
            let rows = || serving.iter().map(|(d, v)| described(&d.definition, v));
            let shown: Vec<PublishedDefinition> = serving
                .iter()
                .map(|(d, _)| PublishedDefinition::of(&d.definition))
                .collect();
            // OpenAPI only changes with names and schemas; conditions alone must not invalidate clients' caches.
            if before.get(&gv) != Some(&shown) {
                self.publish_openapi(&gv, serving.iter().map(|(d, _)| Arc::clone(d)).collect());
                let names = rows().map(|r| (r.plural, r.subresources.iter().map(|(name, ..)| *name).collect()));
                let names: Vec<(&str, Vec<&str>)> = names.collect();
                self.telemetry.requests.serve(name, version, names.into_iter());
            }
            // Last: `kubectl explain` asks for the OpenAPI document of what it has just discovered. Cheap and dependent on
            // conditions, so rebuilt for every change.
            let document = resources::aggregated(&gv, rows(), true);
            self.published
                .apis
                .set_group_version(Source::CUSTOM, &gv, PRIORITIES, document);
            now.insert(gv, shown);
        }
        // Versions that no definition serves any more disappear from all documents.
        for gv in before.keys().filter(|gv| !now.contains_key(gv)) {
            self.published.apis.remove_group_version(Source::CUSTOM, gv);
            self.published.openapi.remove(&v3::key(gv));
            self.telemetry.requests.stop_serving(&gv.group, &gv.version);
        }
        now
    }

    /// The document is built by the first request for it, from the definitions as they are now.
    fn publish_openapi(&self, gv: &GroupVersion, definitions: Vec<Arc<Defined>>) {
        let (of, builder) = (gv.clone(), self.catalog.builder().clone());
        // Computed from identities, not contents: the document is not built just to hash it.
        let hash = hash(definitions.iter().map(|d| &*d.definition));
        let memory = memory(definitions.iter());
        let build = move |to: &mut Pieces<'_>| {
            let rows = definitions.iter().flat_map(|d| {
                let version = d.definition.served(&of.version);
                published(&d.definition, version.into_iter(), builder.scale())
            });
            let rows: Vec<Arc<Resource>> = rows.map(|(_, row)| Arc::new(row)).collect();
            write_group_version(&of, &rows, to);
        };
        self.published
            .openapi
            .set_temporary(&v3::key(gv), hash, memory, Arc::new(build));
    }

    /// As [`publish_openapi`](Self::publish_openapi), for the document of all groups.
    fn publish_openapi_v2(&self) {
        let catalog = self.catalog.clone();
        let memory = memory(catalog.groups().values().flat_map(|group| group.values()));
        let list = move || {
            // Read when the document is built, so later changes are included.
            let groups = catalog.groups();
            let all = groups
                .iter()
                .flat_map(|(name, group)| rows(catalog.builder(), name, group));
            all.collect()
        };
        self.published.openapi_v2.set_custom(memory, Arc::new(list));
    }
}

/// About what documents of these definitions allocate while they are built: one schema after the other
/// becomes a tree.
fn memory<'a>(definitions: impl Iterator<Item = &'a Arc<Defined>>) -> usize {
    const PER_BYTE: usize = 12;
    const PER_DEFINITION: usize = 8 << 10;
    // One schema at a time is decoded, so the largest one bounds the memory.
    let (count, largest) = definitions.fold((0, 0), |(count, largest), d| {
        (count + 1, d.definition.stored.len().max(largest))
    });
    count * PER_DEFINITION + largest * PER_BYTE
}

/// The rows of all versions of a group that can be served. Each definition is decoded once.
fn rows(builder: &Builder, name: &str, group: &Group) -> ServedResources {
    let mut all: HashMap<&str, Vec<Arc<Resource>>> = HashMap::new();
    for d in group.values().filter(|d| d.definition.conditions.established) {
        let served = d.definition.versions.iter().filter(|v| v.served);
        for (version, row) in published(&d.definition, served, builder.scale()) {
            all.entry(&version.name).or_default().push(Arc::new(row));
        }
    }
    let versions = versions(group).into_iter();
    let of_version = versions.map(|v| (GroupVersion::new(name, v), all.remove(v).unwrap_or_default()));
    of_version.collect()
}

/// Changes whenever a document of these definitions may change. The same in all gateways that run this
/// version.
fn hash<'a>(definitions: impl Iterator<Item = &'a Definition>) -> String {
    // The version is part of it, since another release may describe the same definition differently.
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    for d in definitions {
        text.push_str(&format!("/{} {} {} {:?}", d.name, d.uid, d.generation, d.accepted));
    }
    aggregated::hash(text.as_bytes())
}

/// The published form of a group.
type PublishedGroup = BTreeMap<GroupVersion, Vec<PublishedDefinition>>;

/// Identifies what a definition contributes to OpenAPI.
#[derive(PartialEq, Eq)]
struct PublishedDefinition {
    name: Str,
    uid: Str,
    generation: i64,
    accepted: Names,
}

impl PublishedDefinition {
    fn of(definition: &Definition) -> Self {
        Self {
            name: definition.name.clone(),
            uid: definition.uid.clone(),
            generation: definition.generation,
            accepted: definition.accepted.clone(),
        }
    }
}
