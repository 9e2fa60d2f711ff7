//! Converts backends' discovery documents into entries of the aggregated document.

use crate::aggregator::documents::Rejected;
use crate::apimachinery::value::{Map, Value};
use std::collections::HashMap;

/// The versions of an APIGroupDiscoveryList, by group and version.
pub fn versions(mut document: Value) -> HashMap<(String, String), Value> {
    let mut out = HashMap::new();
    // Moved out of the document, not cloned: it may be megabytes.
    for mut group in taken(&mut document, "items") {
        let name = group.str_at(&["metadata", "name"]).to_owned();
        for version in taken(&mut group, "versions") {
            let key = (name.clone(), version.str_at(&["version"]).to_owned());
            out.insert(key, normalized(version));
        }
    }
    out
}

fn taken(of: &mut Value, list: &str) -> Vec<Value> {
    match of.unset(&[list]) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    }
}

/// Replaces missing response kinds by empty ones, since clients do not expect null.
fn normalized(mut entry: Value) -> Value {
    if entry.get("freshness").is_null() {
        entry.set(&["freshness"], "Current");
    }
    fn fill(kind_of: &mut Value) {
        if kind_of.get("responseKind").is_null() {
            kind_of.set(&["responseKind"], kind("", "", ""));
        }
    }
    for resource in entry
        .make_object()
        .entry("resources")
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        fill(resource);
        for sub in resource
            .make_object()
            .get_mut("subresources")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            fill(sub);
        }
    }
    entry
}

/// An entry without resources.
pub(super) fn bare(version: &str, freshness: &str) -> Value {
    let mut m = Map::new();
    m.insert("version", version);
    m.insert("freshness", freshness);
    Value::Object(m)
}

/// Converts an APIResourceList to an aggregated version entry. Subresources are attached to their parents; a
/// missing parent is created.
///
/// # Errors
/// A subresource has another scope than its parent.
pub fn from_resource_list(list: &Value, version: &str) -> Result<Value, Rejected> {
    let mut resources: Vec<Map> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let scope = |r: &Value| match r.get("namespaced").as_bool() {
        Some(true) => "Namespaced",
        _ => "Cluster",
    };
    // Left empty if the list leaves them empty: they then default to the enclosing group version.
    let kind_of = |r: &Value| kind(r.str_at(&["group"]), r.str_at(&["version"]), r.str_at(&["kind"]));
    let all = list.get("resources").items();
    // Parents first: in the list they may come after their subresources.
    for r in all.iter().filter(|r| !r.str_at(&["name"]).contains('/')) {
        let mut m = Map::new();
        m.insert("resource", r.str_at(&["name"]));
        m.insert("responseKind", kind_of(r));
        m.insert("scope", scope(r));
        m.insert("singularResource", r.str_at(&["singularName"]));
        for field in ["verbs", "shortNames", "categories"] {
            if !r.get(field).items().is_empty() {
                m.insert(field, r.get(field).clone());
            }
        }
        // If several resources have the same name, subresources belong to the first.
        places.entry(r.str_at(&["name"])).or_insert(resources.len());
        resources.push(m);
    }
    for r in all {
        let Some((parent, sub)) = r.str_at(&["name"]).split_once('/') else {
            continue;
        };
        let place = match places.get(parent) {
            Some(i) => *i,
            None => {
                // As upstream, which makes up a parent that is not in the list.
                places.insert(parent, resources.len());
                let mut m = Map::new();
                m.insert("resource", parent);
                m.insert("responseKind", kind("", "", ""));
                m.insert("scope", scope(r));
                m.insert("singularResource", "");
                resources.push(m);
                resources.len() - 1
            }
        };
        let parent = &mut resources[place];
        // An error upstream, too.
        if parent.str("scope") != scope(r) {
            return Err(Rejected::Scope(r.str_at(&["name"]).to_owned()));
        }
        let mut m = Map::new();
        m.insert("subresource", sub);
        m.insert("responseKind", kind_of(r));
        m.insert("verbs", r.get("verbs").clone());
        let subs = parent.entry("subresources");
        match subs.as_array_mut() {
            Some(subs) => subs.push(Value::Object(m)),
            None => *subs = vec![Value::Object(m)].into(),
        }
    }
    let mut entry = bare(version, "Current");
    entry.set(
        &["resources"],
        resources.into_iter().map(Value::Object).collect::<Vec<_>>(),
    );
    Ok(entry)
}

fn kind(group: &str, version: &str, kind: &str) -> Value {
    let mut m = Map::new();
    m.insert("group", group);
    m.insert("version", version);
    m.insert("kind", kind);
    Value::Object(m)
}
