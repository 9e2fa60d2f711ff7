//! Discovery of custom resources: the documents of groups and versions, computed from the established definitions, and
//! their parts of aggregated discovery and OpenAPI.

use super::catalog::{Catalog, Defined, Group};
use super::{Definition, Version};
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::endpoints::discovery::aggregated::{Priorities, Source};
use crate::endpoints::discovery::resources::{self, Described};
use crate::endpoints::discovery::{api_group, compare_versions};
use crate::endpoints::install::PublishedDocuments;
use crate::endpoints::openapi::{core_documents, group_version_document, v3};
use crate::registry::Verbs;
use crate::tasks::Signal;
use crate::telemetry::Telemetry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
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
    let established = group.values().filter(|d| d.definition.conditions.established);
    let versions = established.flat_map(|d| &d.definition.versions).filter(|v| v.served);
    let mut names: Vec<&str> = versions.map(|v| v.name.as_str()).collect();
    names.sort_by(|a, b| compare_versions(b, a));
    names.dedup();
    names
}

/// `/apis/<group>`, or `None` if no established definition serves the group.
pub(super) fn group(name: &str, group: &Group) -> Option<Value> {
    let versions = versions(group);
    (!versions.is_empty()).then(|| api_group(name, &versions))
}

/// `/apis/<group>/<version>`, or `None` if no established definition serves it.
pub(super) fn version(name: &str, version: &str, group: &Group) -> Option<Value> {
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
        verbs: match definition.conditions.terminating {
            true => TERMINATING,
            false => Verbs::ALL,
        },
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
    pub fn new(catalog: Arc<Catalog>, published: PublishedDocuments, telemetry: Telemetry) -> Self {
        Self {
            catalog,
            published,
            telemetry,
            changed: Mutex::default(),
            notify: Notify::new(),
        }
    }

    /// Notes a change. Several changes of a group are published together.
    pub fn note(&self, change: &Change<'_, Definition>) {
        if let Some(of) = change.new.or(change.old) {
            self.changed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(of.group.clone());
            self.notify.notify_one();
        }
    }

    /// Publishes changes, once the definitions are known. Never returns.
    pub async fn run(self: Arc<Self>, synced: Signal) {
        synced.wait().await;
        let mut shown: HashMap<Str, BTreeMap<GroupVersion, Vec<Shown>>> = HashMap::new();
        loop {
            let changed = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
            for name in changed {
                let group = self.catalog.group(&name);
                let before = shown.remove(&name).unwrap_or_default();
                let now = self.publish(&name, &group, &before);
                if !now.is_empty() {
                    shown.insert(name, now);
                }
            }
            self.notify.notified().await;
        }
    }

    fn publish(
        &self,
        name: &str,
        group: &Group,
        before: &BTreeMap<GroupVersion, Vec<Shown>>,
    ) -> BTreeMap<GroupVersion, Vec<Shown>> {
        let mut now = BTreeMap::new();
        for version in versions(group) {
            let gv = GroupVersion::new(name, version);
            let rows = || serving(group, version).map(|(d, v)| described(d, v));
            let document = resources::aggregated(&gv, rows(), true);
            self.published
                .apis
                .set_group_version(Source::CUSTOM, &gv, PRIORITIES, document);
            let shown: Vec<Shown> = serving(group, version).map(|(d, _)| Shown::of(d)).collect();
            if before.get(&gv) != Some(&shown) {
                self.publish_openapi(&gv, group);
                let names = rows().map(|r| (r.plural, r.subresources.iter().map(|(name, ..)| *name).collect()));
                let names: Vec<(&str, Vec<&str>)> = names.collect();
                self.telemetry.requests.serve(name, version, names.into_iter());
            }
            now.insert(gv, shown);
        }
        for gv in before.keys().filter(|gv| !now.contains_key(gv)) {
            self.published.apis.remove_group_version(Source::CUSTOM, gv);
            self.published.openapi.remove(&v3::key(gv));
        }
        let (key, build) = core_documents::group(name);
        match (before.is_empty(), now.is_empty()) {
            (true, false) => self.published.openapi.set(&key, build),
            (false, true) => self.published.openapi.remove(&key),
            _ => {}
        }
        now
    }

    /// The document is built by the first request for it, from the definitions as they are now.
    fn publish_openapi(&self, gv: &GroupVersion, group: &Group) {
        let definitions: Vec<Arc<Defined>> = group
            .values()
            .filter(|d| d.definition.conditions.established && d.definition.served(&gv.version).is_some())
            .cloned()
            .collect();
        let (of, builder) = (gv.clone(), self.catalog.builder().clone());
        let build = move || {
            let rows = definitions
                .iter()
                .filter_map(|d| builder.row(&d.definition, &of.version).ok());
            group_version_document(&of, &rows.map(Arc::new).collect::<Vec<_>>())
        };
        self.published.openapi.set(&v3::key(gv), Arc::new(build));
    }
}

/// Identifies what a definition contributes to OpenAPI.
#[derive(PartialEq, Eq)]
struct Shown {
    name: Str,
    uid: Str,
    generation: i64,
}

impl Shown {
    fn of(definition: &Definition) -> Self {
        Self {
            name: definition.name.clone(),
            uid: definition.uid.clone(),
            generation: definition.generation,
        }
    }
}
