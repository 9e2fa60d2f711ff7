//! Conversion between the two versions of a pair.
//!
//! ```text
//! source ─ take what only it has ─ take what moves ─ put it ─ fill in what only the target has ─► target
//!             └ other than its default: kept in an annotation ─────────────── and found there ┘
//! ```
//!
//! A move removes the objects that become empty by it, and creates those it needs. Where the way back would
//! then lack an object that the source had, its path is kept too.

use super::path::{Items, Keys, node};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Map, Str, Value};
use crate::interrupt::checkpoint;
use std::collections::{HashMap, HashSet};

/// The versions of a pair and what differs between them.
#[derive(Debug)]
pub(super) struct Pair {
    pub sides: [Side; 2],
    /// Fields of items, whose paths are those of the first version.
    pub items: Vec<Renames>,
    /// Fields at another place.
    pub moves: Vec<Move>,
    /// All objects around the fields of rules, outermost first.
    around: Vec<Around>,
}

/// An object around the field of a rule.
#[derive(Debug)]
struct Around {
    keys: Keys,
    /// The keys as annotations name them.
    path: String,
    /// Whether each version has it.
    exists: [bool; 2],
}

/// One version of a pair.
#[derive(Debug)]
pub(super) struct Side {
    /// The version's name, such as `v1`.
    pub version: String,
    /// The annotation that keeps what only this version has.
    key: String,
    /// The fields that only this version has.
    pub only: Vec<Only>,
}

/// A field at another place, and with other values.
#[derive(Debug)]
pub(super) struct Move {
    /// Where it is in each version.
    pub paths: [Keys; 2],
    /// Values with another name, by the name that each version has for them: every item may have one.
    names: [HashMap<Str, Str>; 2],
}

/// Renamed fields of items.
#[derive(Debug)]
pub(super) struct Renames {
    pub items: Items,
    pub moves: Vec<Move>,
}

/// A field of one version.
#[derive(Debug)]
pub(super) struct Only {
    pub path: Keys,
    /// Its value where the object comes from the other version, if the object around it exists.
    pub default: Option<Value>,
    /// True if the schema must allow no other value; the value is then not preserved.
    pub constant: bool,
}

/// The content of an object's annotation.
#[derive(Default)]
struct Preserved {
    fields: Map,
    /// Paths of objects. In an annotation that a user has written these may be any values, and many.
    objects: Vec<Value>,
}

impl Side {
    pub(crate) fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            key: format!("conversion.torana.dev/{version}"),
            only: Vec::new(),
        }
    }
}

impl Move {
    /// A move between these paths, with the names that both versions have for some values. If several
    /// values have the same name, the first one is used.
    pub(crate) fn new(paths: [Keys; 2], values: Vec<(Str, Str)>) -> Self {
        let mut names = [HashMap::new(), HashMap::new()];
        for (from, to) in values {
            // Both directions come from the same list; `or_insert` makes the first of duplicates win in either one.
            names[0].entry(from.clone()).or_insert(to.clone());
            names[1].entry(to).or_insert(from);
        }
        Self { paths, names }
    }

    /// The values of the first version that have another name in the second.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Str> {
        self.names[0].keys()
    }

    /// The value as the other side names it.
    pub(crate) fn renamed(&self, value: Value, forward: bool) -> Value {
        let names = &self.names[ends(forward).0];
        match value.as_str().and_then(|text| names.get(text)) {
            Some(other) => Value::String(other.clone()),
            None => value,
        }
    }
}

/// Moves fields within `v`: all are taken before any is put, so that they can be swapped.
fn shift(moves: &[Move], v: &mut Value, forward: bool) {
    // A closure that borrows `v` mutably, so the takes are collected before any put.
    let (from, to) = ends(forward);
    let take = |m: &Move| {
        checkpoint();
        m.paths[from].take_with_parents(v)
    };
    let taken: Vec<_> = moves.iter().map(take).collect();
    for (m, value) in moves.iter().zip(taken) {
        if let Some(value) = value {
            m.paths[to].put(v, m.renamed(value, forward));
        }
    }
}

/// Indices of the source and the target.
const fn ends(forward: bool) -> (usize, usize) {
    if forward { (0, 1) } else { (1, 0) }
}

impl Pair {
    pub(crate) fn new(from: Side, to: Side) -> Self {
        Self {
            sides: [from, to],
            items: Vec::new(),
            moves: Vec::new(),
            around: Vec::new(),
        }
    }

    /// Called once all rules are there, with the schemas of both versions.
    pub(crate) fn complete(&mut self, schemas: [&Value; 2]) {
        // Parents of all paths in both versions: any of them may become empty or be created by a rule.
        let moved = self.moves.iter().flat_map(|m| &m.paths);
        let only = self.sides.iter().flat_map(|s| &s.only).map(|o| &o.path);
        let parents = moved
            .chain(only)
            .flat_map(|p| std::iter::successors(p.parent(), Keys::parent));
        let mut around: Vec<Keys> = parents.collect();
        // Outermost first, so that `apply` creates parents before children.
        around.sort_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| a.0.cmp(&b.0)));
        around.dedup();
        let around = around.into_iter().map(|keys| Around {
            // Kept from the schema: a preserved object is only put back where the version has it.
            exists: schemas.map(|schema| node(schema, &keys).is_some()),
            path: keys.to_string(),
            keys,
        });
        self.around = around.collect();
    }

    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        let items = self.items.iter().map(|r| r.moves.len());
        let only = self.sides.iter().map(|s| s.only.len());
        self.moves.len() + items.chain(only).sum::<usize>()
    }

    /// Converts an object, except for its `apiVersion`.
    pub(crate) fn convert(&self, object: &mut Value, forward: bool) {
        let (from, to) = ends(forward);
        // Taken before the rules run: the annotation is about the target and must not survive in it.
        let given = take_preserved(object, &self.sides[to].key);
        // Remembered beforehand, because the rules may remove objects that become empty.
        let had: Vec<&Around> = self.around.iter().filter(|a| is_object(&a.keys, object)).collect();
        let mut preserved = self.apply(object, forward, &given);
        // Fields that the target does not have would be pruned.
        for around in had.iter().filter(|a| !a.exists[to]) {
            around.keys.take(object);
        }
        // Converted back on a copy, which is the only reliable way to know what the way back would miss.
        if !had.is_empty() {
            let mut back = object.clone();
            // Without preserved values: only what the rules alone restore counts.
            self.apply(&mut back, !forward, &Preserved::default());
            let lost = had.into_iter().filter(|a| !is_object(&a.keys, &back));
            preserved.objects = lost.map(|a| Value::from(a.path.as_str())).collect();
        }
        // Written under the source's key, where the conversion back finds it.
        write_preserved(object, &self.sides[from].key, preserved);
    }

    fn apply(&self, object: &mut Value, forward: bool, given: &Preserved) -> Preserved {
        let (from, to) = ends(forward);
        let mut preserved = Preserved::default();
        for only in &self.sides[from].only {
            checkpoint();
            match only.path.take(object) {
                // A value equal to the default is restored by the rule and needs no annotation.
                Some(value) if Some(&value) != only.default.as_ref() => {
                    preserved.fields.insert(only.path.to_string(), value);
                }
                _ => {}
            }
        }
        // Item paths are those of the first version: renamed before the lists move away from there, or after they
        // have come back.
        if forward {
            self.rename(object, forward);
        }
        shift(&self.moves, object, forward);
        if !forward {
            self.rename(object, forward);
        }
        // A set, since the annotation may name many objects and users can write it.
        let wanted: HashSet<&str> = given
            .objects
            .iter()
            .filter_map(|path| {
                checkpoint();
                path.as_str()
            })
            .collect();
        for Around { keys, path, .. } in &self.around {
            // Never replaces what the rules have put there.
            if wanted.contains(path.as_str()) && keys.get(object).is_none() {
                keys.put(object, Value::object());
            }
        }
        for only in &self.sides[to].only {
            checkpoint();
            // The preserved value wins over the default.
            let value = given.fields.get(&only.path.to_string()).or(only.default.as_ref());
            let around = only.path.parent();
            if let Some(value) = value
                // A default must not create the object around it, or an absent optional struct would appear.
                && around.is_none_or(|keys| is_object(&keys, object))
            {
                only.path.put(object, value.clone());
            }
        }
        preserved
    }

    fn rename(&self, object: &mut Value, forward: bool) {
        for renames in &self.items {
            let mut shift = |item: &mut Value| shift(&renames.moves, item, forward);
            renames.items.each(object, &mut shift);
        }
    }
}

fn is_object(keys: &Keys, object: &Value) -> bool {
    keys.get(object).is_some_and(|v| v.as_object().is_some())
}

/// Removes and reads the annotation `key`. Users can write it, so anything malformed is ignored.
fn take_preserved(object: &mut Value, key: &str) -> Preserved {
    const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
    let Some(annotations) = object.at_mut(&ANNOTATIONS).and_then(Value::as_object_mut) else {
        return Preserved::default();
    };
    // Removed even if it is malformed, so that it cannot accumulate.
    let Some(text) = annotations.remove(key) else {
        return Preserved::default();
    };
    // Leaves no empty map behind, which would differ from the object that was written.
    if annotations.is_empty() {
        object.unset(&ANNOTATIONS);
    }
    let text = text.as_str().unwrap_or_default();
    // The whole annotation is the user's to write: anything unreadable counts as nothing preserved.
    let mut preserved = json::decode(text.as_bytes()).unwrap_or_default();
    Preserved {
        fields: match preserved.unset(&["fields"]) {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        },
        objects: match preserved.unset(&["objects"]) {
            Some(Value::Array(objects)) => objects,
            _ => Vec::new(),
        },
    }
}

fn write_preserved(object: &mut Value, key: &str, preserved: Preserved) {
    if preserved.fields.is_empty() && preserved.objects.is_empty() {
        return;
    }
    let mut value = Value::object();
    if !preserved.fields.is_empty() {
        value.set(&["fields"], Value::Object(preserved.fields));
    }
    if !preserved.objects.is_empty() {
        value.set(&["objects"], preserved.objects);
    }
    let text = String::from_utf8(json::to_vec(&value)).expect("JSON is UTF-8");
    object.set(&["metadata", "annotations", key], text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::conversion::declarative::rules;
    use crate::interrupt::{self, Limit};
    use crate::json;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Counts how often the clock would be read.
    struct Looks(Rc<Cell<usize>>);

    impl Limit for Looks {
        fn is_exceeded(&self) -> bool {
            self.0.set(self.0.get() + 1);
            false
        }
    }

    fn looks(work: impl FnOnce()) -> usize {
        let count = Rc::new(Cell::new(0));
        interrupt::run(Rc::new(Looks(count.clone())), work).unwrap();
        count.get()
    }

    fn pair(rules: Value) -> Pair {
        let document = json!([{"from": "a", "to": "b", "rules": rules}]);
        let mut pair = rules::pairs(&document).unwrap().remove(0);
        pair.complete([&Value::Null, &Value::Null]);
        pair
    }

    #[test]
    fn annotation_paths_are_read_once_for_all_rules() {
        let moves = (0..100).map(|i| json!({"move": {"from": format!(".a{i}.x"), "to": format!(".b{i}.x")}}));
        let pair = pair(moves.collect::<Vec<_>>().into());
        const NAMED: usize = 50_000;
        let mut objects: Vec<Value> = (0..NAMED).map(|i| Value::from(format!(".other{i}"))).collect();
        objects.push(".b7".into());
        let fields = Map::new();
        let given = Preserved { fields, objects };
        let mut object = json!({});
        let looks = looks(|| drop(pair.apply(&mut object, true, &given)));
        assert_eq!(object, json!({"b7": {}}));
        assert!((NAMED / 256..NAMED / 64).contains(&looks), "{looks}");
    }

    #[test]
    fn duplicate_value_names_resolve_to_the_first() {
        let values = [("a", "x"), ("b", "x"), ("c", "y")].map(|(a, b)| (Str::new(a), Str::new(b)));
        let keys = || Keys(vec![Str::new("f")]);
        let renames = Move::new([keys(), keys()], values.to_vec());
        for (from, to, forward) in [("b", "x", true), ("x", "a", false), ("y", "c", false), ("q", "q", true)] {
            assert_eq!(renames.renamed(from.into(), forward), Value::from(to));
        }
        assert_eq!(renames.renamed(json!(1), true), json!(1));
    }
}
