//! Discovery of the resources of one group version: the legacy APIResourceList, and the entry in the aggregated
//! document.

use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind};
use crate::apimachinery::value::{Map, Str, Value};
use crate::registry::resource::Resource;
use crate::registry::{Subresource, Verbs};
use aws_lc_rs::digest;
use base64::Engine as _;
use std::sync::Arc;

/// The hash by which clients distinguish storage versions.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let text = format!("{group}/{version}/{kind}");
    let sum = digest::digest(&digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&sum.as_ref()[..8])
}

/// The resources sorted by path.
fn sorted<'a>(rows: impl Iterator<Item = &'a Arc<Resource>>) -> Vec<&'a Arc<Resource>> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| a.gvr.resource.cmp(&b.gvr.resource));
    rows
}

fn sorted_subresources(row: &Resource) -> Vec<&Subresource> {
    let mut subs: Vec<_> = row.subresources.iter().collect();
    subs.sort_by_key(|s| s.name);
    subs
}

fn verbs(v: Verbs) -> Value {
    Value::Array(v.names().into_iter().map(Value::from).collect())
}

fn strings(all: &[Str]) -> Vec<Value> {
    all.iter().map(|s| Value::from(s.as_str())).collect()
}

/// Builds an `APIResourceList`. Like upstream's, the one of the core group has no apiVersion.
pub fn list<'a>(gv: &GroupVersion, rows: impl Iterator<Item = &'a Arc<Resource>>) -> Value {
    let mut resources = Vec::new();
    for row in sorted(rows) {
        let mut m = Map::new();
        m.insert("name", row.gvr.resource.as_str());
        m.insert("singularName", row.singular.as_str());
        m.insert("namespaced", row.namespaced);
        m.insert("kind", row.kind.as_str());
        m.insert("verbs", verbs(row.verbs));
        if !row.short_names.is_empty() {
            m.insert("shortNames", strings(&row.short_names));
        }
        if !row.categories.is_empty() {
            m.insert("categories", strings(&row.categories));
        }
        if !row.storage_version_hash.is_empty() {
            m.insert("storageVersionHash", row.storage_version_hash.as_str());
        }
        resources.push(Value::Object(m));
        for sub in sorted_subresources(row) {
            let mut m = Map::new();
            m.insert("name", format!("{}/{}", row.gvr.resource, sub.name));
            m.insert("singularName", "");
            m.insert("namespaced", row.namespaced);
            // Listed only if they differ from the group version of the list.
            if !sub.kind.kind.is_empty() && sub.kind.group_version() != *gv {
                m.insert("group", sub.kind.group.as_str());
                m.insert("version", sub.kind.version.as_str());
            }
            m.insert("kind", sub.kind.kind.as_str());
            m.insert("verbs", verbs(sub.verbs));
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
/// With `filled`, response kinds include their group and version (custom resources); built-in ones omit what the path
/// already contains.
pub fn aggregated<'a>(gv: &GroupVersion, rows: impl Iterator<Item = &'a Arc<Resource>>, filled: bool) -> Value {
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
        m.insert("resource", row.gvr.resource.as_str());
        m.insert("responseKind", kind(&row.gvk()));
        m.insert("scope", if row.namespaced { "Namespaced" } else { "Cluster" });
        m.insert("singularResource", row.singular.as_str());
        m.insert("verbs", verbs(row.verbs));
        if !row.short_names.is_empty() {
            m.insert("shortNames", strings(&row.short_names));
        }
        if !row.categories.is_empty() {
            m.insert("categories", strings(&row.categories));
        }
        let subs: Vec<Value> = sorted_subresources(row)
            .into_iter()
            .map(|sub| {
                let mut m = Map::new();
                m.insert("subresource", sub.name);
                m.insert("responseKind", kind(&sub.kind));
                m.insert("verbs", verbs(sub.verbs));
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
}
