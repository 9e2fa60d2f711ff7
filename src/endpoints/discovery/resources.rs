//! Discovery of the resources of one group version: the legacy APIResourceList, and the entry in the
//! aggregated document.

use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::apimachinery::value::{Map, Str, Value};
use crate::registry::Verbs;
use crate::registry::resource::Resource;
use aws_lc_rs::digest;
use base64::Engine as _;

/// The hash by which clients distinguish storage versions.
pub(crate) fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    // The first eight bytes of the hash, as in upstream's `discovery.StorageVersionHash`.
    let text = format!("{group}/{version}/{kind}");
    let sum = digest::digest(&digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&sum.as_ref()[..8])
}

/// The description of a resource in discovery.
pub(crate) struct Described<'a> {
    pub kind: GroupVersionKind,
    pub plural: &'a str,
    pub singular: &'a str,
    pub short_names: &'a [Str],
    pub categories: &'a [Str],
    /// True for namespaced resources.
    pub namespaced: bool,
    pub verbs: Verbs,
    /// True for custom resources, whose verbs and subresources upstream does not sort.
    pub custom: bool,
    /// See [`storage_version_hash`]; empty for none.
    pub storage_version_hash: Str,
    /// Name, kind and verbs of the subresources.
    pub subresources: Vec<(&'a str, GroupVersionKind, Verbs)>,
}

impl<'a> Described<'a> {
    pub(crate) fn of(row: &'a Resource) -> Self {
        let subresources = row.subresources.iter();
        Self {
            kind: row.gvk(),
            plural: &row.gvr.resource,
            singular: &row.singular,
            short_names: &row.short_names,
            categories: &row.categories,
            namespaced: row.namespaced,
            verbs: row.verbs,
            custom: row.unstructured,
            storage_version_hash: row.storage_version_hash.clone(),
            subresources: subresources
                .map(|s| (s.name.as_str(), s.kind.clone(), s.verbs))
                .collect(),
        }
    }
}

/// The resources sorted by path.
fn sorted<'a>(rows: impl Iterator<Item = Described<'a>>) -> Vec<Described<'a>> {
    let mut rows: Vec<_> = rows.collect();
    // In the order in which upstream's installer registers paths.
    rows.sort_by(|a, b| a.plural.cmp(b.plural));
    for row in &mut rows {
        row.subresources.sort_by_key(|(name, ..)| *name);
        if row.custom {
            // `status` before `scale`.
            row.subresources.reverse();
        }
    }
    rows
}

fn verbs(verbs: Verbs, custom: bool) -> Value {
    let mut names = verbs.names();
    if custom {
        // In the order of upstream's customresource_discovery_controller.go.
        let late = |name: &&str| matches!(*name, "create" | "update" | "watch");
        names.sort_by_key(late);
    }
    Value::Array(names.into_iter().map(Value::from).collect())
}

fn strings(all: &[Str]) -> Vec<Value> {
    all.iter().map(|s| Value::from(s.as_str())).collect()
}

/// Builds an `APIResourceList`. Like upstream's, the one of the core group has no apiVersion.
pub(crate) fn list<'a>(gv: &GroupVersion, rows: impl Iterator<Item = Described<'a>>) -> Value {
    let mut resources = Vec::new();
    for row in sorted(rows) {
        let mut m = Map::new();
        m.insert("name", row.plural);
        m.insert("singularName", row.singular);
        m.insert("namespaced", row.namespaced);
        m.insert("kind", row.kind.kind.as_str());
        m.insert("verbs", verbs(row.verbs, row.custom));
        if !row.short_names.is_empty() {
            m.insert("shortNames", strings(row.short_names));
        }
        if !row.categories.is_empty() {
            m.insert("categories", strings(row.categories));
        }
        if !row.storage_version_hash.is_empty() {
            m.insert("storageVersionHash", row.storage_version_hash.as_str());
        }
        resources.push(Value::Object(m));
        for (sub, of, offered) in &row.subresources {
            let mut m = Map::new();
            m.insert("name", format!("{}/{sub}", row.plural));
            // Written although empty: upstream's field has no `omitempty`.
            m.insert("singularName", "");
            m.insert("namespaced", row.namespaced);
            // Listed only if they differ from the group version of the list.
            if !of.kind.is_empty() && of.group_version() != *gv {
                m.insert("group", of.group.as_str());
                m.insert("version", of.version.as_str());
            }
            m.insert("kind", of.kind.as_str());
            m.insert("verbs", verbs(*offered, row.custom));
            resources.push(Value::Object(m));
        }
    }
    let mut m = Map::new();
    m.insert("kind", "APIResourceList");
    if !gv.group.is_empty() {
        m.insert("apiVersion", "v1");
    }
    m.insert("groupVersion", gv.to_string());
    m.insert("resources", resources);
    Value::Object(m)
}

/// Builds the group version's entry in the aggregated document: `{version, resources, freshness}`.
///
/// With `filled`, response kinds include their group and version (custom resources); built-in ones omit what
/// the path already contains.
pub(crate) fn aggregated<'a>(gv: &GroupVersion, rows: impl Iterator<Item = Described<'a>>, filled: bool) -> Value {
    let kind = |gvk: &GroupVersionKind| {
        let same = !filled && gvk.group_version() == *gv;
        let part = |s: &Str| Value::from(if same { "" } else { s.as_str() });
        let mut m = Map::new();
        m.insert("group", part(&gvk.group));
        m.insert("version", part(&gvk.version));
        m.insert("kind", gvk.kind.as_str());
        Value::Object(m)
    };
    let mut resources = Vec::new();
    for row in sorted(rows) {
        let mut m = Map::new();
        m.insert("resource", row.plural);
        m.insert("responseKind", kind(&row.kind));
        m.insert("scope", if row.namespaced { "Namespaced" } else { "Cluster" });
        m.insert("singularResource", row.singular);
        m.insert("verbs", verbs(row.verbs, row.custom));
        if !row.short_names.is_empty() {
            m.insert("shortNames", strings(row.short_names));
        }
        if !row.categories.is_empty() {
            m.insert("categories", strings(row.categories));
        }
        let subs: Vec<Value> = row
            .subresources
            .iter()
            .map(|(sub, of, offered)| {
                let mut m = Map::new();
                m.insert("subresource", *sub);
                m.insert("responseKind", kind(of));
                m.insert("verbs", verbs(*offered, row.custom));
                Value::Object(m)
            })
            .collect();
        if !subs.is_empty() {
            m.insert("subresources", subs);
        }
        resources.push(Value::Object(m));
    }
    let mut m = Map::new();
    m.insert("version", gv.version.as_str());
    m.insert("resources", resources);
    // Our own versions cannot be stale: nothing has to be fetched.
    m.insert("freshness", "Current");
    Value::Object(m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_version_hash_matches_upstream() {
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
    }

    #[test]
    fn verbs_and_subresources_of_custom_resources_are_in_upstreams_order() {
        let gv = GroupVersion::parse("example.com/v1").unwrap();
        let names = |custom: bool| {
            let row = Described {
                kind: gv.with_kind("Bar"),
                plural: "bars",
                singular: "bar",
                short_names: &[],
                categories: &[],
                namespaced: true,
                verbs: Verbs::ALL,
                custom,
                storage_version_hash: Str::default(),
                subresources: vec![
                    ("scale", gv.with_kind("Scale"), Verbs::GET_PATCH_UPDATE),
                    ("status", gv.with_kind("Bar"), Verbs::GET_PATCH_UPDATE),
                ],
            };
            let list = list(&gv, std::iter::once(row));
            let of = |i: usize| list.get("resources").items()[i].clone();
            let verbs: Vec<String> = of(0)
                .get("verbs")
                .items()
                .iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            (verbs.join(" "), of(1).str_at(&["name"]).to_owned())
        };
        let unsorted = "delete deletecollection get list patch create update watch";
        assert_eq!(names(true), (unsorted.to_owned(), "bars/status".to_owned()));
        let sorted = "create delete deletecollection get list patch update watch";
        assert_eq!(names(false), (sorted.to_owned(), "bars/scale".to_owned()));
    }
}
