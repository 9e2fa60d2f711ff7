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

/// The versions of a pair and what differs between them.
#[derive(Debug)]
pub(super) struct Pair {
    /// The versions.
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
    /// Whether each version has it.
    exists: [bool; 2],
}

/// One version.
#[derive(Debug)]
pub(super) struct Side {
    /// Its name.
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
    /// Values with another name.
    pub values: Vec<(Str, Str)>,
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
    /// The schema allows no other value.
    pub constant: bool,
}

/// The content of an object's annotation.
#[derive(Default)]
struct Preserved {
    fields: Map,
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
    /// The value as the other side names it.
    pub(crate) fn renamed(&self, value: Value, forward: bool) -> Value {
        let Some(text) = value.as_str() else { return value };
        let mut values = self.values.iter();
        let other = values.find_map(|(a, b)| match forward {
            true => (a == text).then_some(b),
            false => (b == text).then_some(a),
        });
        other.map_or_else(|| value.clone(), |other| Value::String(other.clone()))
    }
}

/// Moves fields within `v`: all are taken before any is put, so that they can be swapped.
fn shift(moves: &[Move], v: &mut Value, forward: bool) {
    let (from, to) = ends(forward);
    let taken: Vec<_> = moves.iter().map(|m| m.paths[from].take_with_parents(v)).collect();
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
        let moved = self.moves.iter().flat_map(|m| &m.paths);
        let only = self.sides.iter().flat_map(|s| &s.only).map(|o| &o.path);
        let parents = moved
            .chain(only)
            .flat_map(|p| std::iter::successors(p.parent(), Keys::parent));
        let mut around: Vec<Keys> = parents.collect();
        around.sort_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| a.0.cmp(&b.0)));
        around.dedup();
        let around = around.into_iter().map(|keys| Around {
            exists: schemas.map(|schema| node(schema, &keys).is_some()),
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
        let given = take_preserved(object, &self.sides[to].key);
        let had: Vec<&Around> = self.around.iter().filter(|a| is_object(&a.keys, object)).collect();
        let mut preserved = self.apply(object, forward, &given);
        // Fields that the target does not have would be pruned.
        for around in had.iter().filter(|a| !a.exists[to]) {
            around.keys.take(object);
        }
        if !had.is_empty() {
            let mut back = object.clone();
            self.apply(&mut back, !forward, &Preserved::default());
            let lost = had.into_iter().filter(|a| !is_object(&a.keys, &back));
            preserved.objects = lost.map(|a| Value::from(a.keys.to_string())).collect();
        }
        write_preserved(object, &self.sides[from].key, preserved);
    }

    fn apply(&self, object: &mut Value, forward: bool, given: &Preserved) -> Preserved {
        let (from, to) = ends(forward);
        let mut preserved = Preserved::default();
        for only in &self.sides[from].only {
            match only.path.take(object) {
                Some(value) if Some(&value) != only.default.as_ref() => {
                    preserved.fields.insert(only.path.to_string(), value);
                }
                _ => {}
            }
        }
        if forward {
            self.rename(object, forward);
        }
        shift(&self.moves, object, forward);
        if !forward {
            self.rename(object, forward);
        }
        for Around { keys, .. } in self.around.iter().filter(|_| !given.objects.is_empty()) {
            let wanted = given
                .objects
                .iter()
                .any(|path| path.as_str() == Some(&keys.to_string()));
            if wanted && keys.get(object).is_none() {
                keys.put(object, Value::object());
            }
        }
        for only in &self.sides[to].only {
            let value = given.fields.get(&only.path.to_string()).or(only.default.as_ref());
            let around = only.path.parent();
            if let Some(value) = value
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

/// Removes and reads the annotation `key`. Users can write it: what does not make sense is ignored.
fn take_preserved(object: &mut Value, key: &str) -> Preserved {
    const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
    let Some(annotations) = object.at_mut(&ANNOTATIONS).and_then(Value::as_object_mut) else {
        return Preserved::default();
    };
    let Some(text) = annotations.remove(key) else {
        return Preserved::default();
    };
    if annotations.is_empty() {
        object.unset(&ANNOTATIONS);
    }
    let text = text.as_str().unwrap_or_default();
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
