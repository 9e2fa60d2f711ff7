//! Merges OpenAPI v2 documents, like upstream's `kube-openapi/pkg/aggregator` but on JSON trees. Entry
//! points: [`filter`], [`merge`].
//!
//! If several documents have the same path, the first wins. A definition with a name that is taken and
//! different content is renamed; equal definitions are shared, and their group version kinds united.

#[cfg(test)]
mod tests;

use crate::apimachinery::value::{Map, Str, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const KINDS: &str = "x-kubernetes-group-version-kind";
/// Sections whose members are referenced by name, and the prefix of references to them.
const SHARED: [(&str, &str); 2] = [("definitions", "#/definitions/"), ("parameters", "#/parameters/")];

/// Keeps the paths that `keep` accepts, and removes definitions that only the other paths use.
pub fn filter(document: &mut Value, keep: impl Fn(&str) -> bool) {
    let before = used(document);
    if let Some(paths) = document.object_entry("paths") {
        paths.retain(|path, _| keep(path));
    }
    let after = used(document);
    for (section, prefix) in SHARED {
        if let Some(all) = document.object_entry(section) {
            all.retain(|name, _| {
                let reference = format!("{prefix}{name}");
                // A definition that was never referenced is kept: it may be meant for clients, not for a path.
                after.contains(&reference) || !before.contains(&reference)
            });
        }
    }
}

/// Merges `from` into a document of higher precedence.
pub fn merge(into: &mut Value, mut from: Value) {
    // Looked up one by one: a set of all paths for each document would be quadratic over thousands of documents.
    let is_taken = |path: &str| into.get("paths").as_object().is_some_and(|all| all.contains_key(path));
    // Filtered only on a collision: it walks the whole document twice.
    if paths(&from).any(is_taken) {
        filter(&mut from, |path| !is_taken(path));
    }
    if paths(&from).next().is_none() {
        return;
    }
    let renames = renames(into, &from);
    if !renames.is_empty() {
        redirect(&mut from, &renames);
    }
    for (section, prefix) in SHARED {
        let mut added = Vec::new();
        for (name, value) in take(&mut from, section) {
            let name = match renames.get(&format!("{prefix}{name}")) {
                Some(new) => new[prefix.len()..].into(),
                None => name,
            };
            match into.at_mut(&[section, name.as_str()]) {
                Some(there) => unite_kinds(there, &value),
                None => added.push((name, value)),
            }
        }
        add_all(into, section, added);
    }
    for (section, overwrites) in [("paths", true), ("responses", false)] {
        let added = take(&mut from, section).into_iter();
        let added = added.filter(|(name, _)| overwrites || into.at(&[section, name.as_str()]).is_null());
        let added = added.collect();
        add_all(into, section, added);
    }
}

/// Adds members to a section in one step: one by one, each insertion would shift those after it.
fn add_all(into: &mut Value, section: &str, added: Vec<(Str, Value)>) {
    if added.is_empty() {
        return;
    }
    // Sorted and unique, which renaming may have changed.
    let added = Map::from_pairs(added).into_iter();
    let changes = added.map(|(name, value)| (name, Some(value))).collect();
    into.entry_object(section).change(changes);
}

/// Access to the sections of a document.
trait Sections {
    fn object_entry(&mut self, section: &str) -> Option<&mut Map>;
    fn entry_object(&mut self, section: &str) -> &mut Map;
}

impl Sections for Value {
    fn object_entry(&mut self, section: &str) -> Option<&mut Map> {
        self.at_mut(&[section])?.as_object_mut()
    }

    fn entry_object(&mut self, section: &str) -> &mut Map {
        self.make_object().object_entry(section)
    }
}

fn paths(document: &Value) -> impl Iterator<Item = &str> {
    document.get("paths").as_object().into_iter().flat_map(Map::keys)
}

fn take(document: &mut Value, section: &str) -> Map {
    match document.unset(&[section]) {
        Some(Value::Object(m)) => m,
        _ => Map::new(),
    }
}

/// All references reachable from the paths.
fn used(document: &Value) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = Vec::new();
    references(document.get("paths"), &mut open);
    while let Some(reference) = open.pop() {
        for (section, prefix) in SHARED {
            if let Some(name) = reference.strip_prefix(prefix)
                // Each reference is followed once: definitions may refer to each other in circles.
                && seen.insert(reference.to_owned())
            {
                references(document.get(section).get(name), &mut open);
            }
        }
    }
    seen
}

fn references<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(m) => {
            for (key, v) in m.iter() {
                match v {
                    Value::String(s) if key == "$ref" => out.push(s),
                    _ => references(v, out),
                }
            }
        }
        Value::Array(a) => a.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

fn redirect(value: &mut Value, renames: &HashMap<String, String>) {
    match value {
        Value::Object(m) => {
            for (key, v) in m.iter_mut() {
                match v {
                    Value::String(s) if key == "$ref" => {
                        if let Some(new) = renames.get(s.as_str()) {
                            *s = new.as_str().into();
                        }
                    }
                    _ => redirect(v, renames),
                }
            }
        }
        Value::Array(a) => a.iter_mut().for_each(|v| redirect(v, renames)),
        _ => {}
    }
}

/// Maps references whose name is taken by different content to new ones.
fn renames(into: &Value, from: &Value) -> HashMap<String, String> {
    let mut out = HashMap::new();
    for (section, prefix) in SHARED {
        let (theirs, ours) = (from.get(section).as_object(), into.get(section).as_object());
        let (Some(theirs), Some(ours)) = (theirs, ours) else {
            continue;
        };
        for (name, value) in theirs.iter() {
            if ours.get(name).is_none_or(|there| same(there, value)) {
                continue;
            }
            let free = |candidate: &String| {
                let there = ours.get(candidate).is_none_or(|there| same(there, value));
                // Not taken in `theirs` either: a definition there may already have the new name.
                there && !theirs.contains_key(candidate)
            };
            // Upstream's naming: `_v2`, `_v3` and so on; an equal definition under such a name is reused.
            let candidate = (2..).map(|i| format!("{name}_v{i}")).find(free);
            out.extend(candidate.map(|new| (format!("{prefix}{name}"), format!("{prefix}{new}"))));
        }
    }
    out
}

/// Whether two definitions are equal apart from their group version kinds.
fn same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a == b;
    };
    // Kinds are united rather than compared, so they count neither in number nor in content.
    let content = |m: &Map| m.len() - usize::from(m.contains_key(KINDS));
    content(a) == content(b) && a.iter().all(|(k, v)| k == KINDS || b.get(k) == Some(v))
}

fn unite_kinds(there: &mut Value, other: &Value) {
    if *there.get(KINDS) == *other.get(KINDS) || other.get(KINDS).items().is_empty() {
        return;
    }
    let name = |k: &Value| {
        format!(
            "{}/{}.{}",
            k.str_at(&["group"]),
            k.str_at(&["version"]),
            k.str_at(&["kind"])
        )
    };
    let both = there.get(KINDS).items().iter().chain(other.get(KINDS).items());
    let all: BTreeMap<String, &Value> = both.map(|kind| (name(kind), kind)).collect();
    let all: Vec<Value> = all.into_values().cloned().collect();
    there.set(&[KINDS], all);
}
