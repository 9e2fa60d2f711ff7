//! Proves that a pair loses nothing, from the schemas of its versions.
//!
//! The rules are applied to the first schema instead of an object. If the result has the same shape as the
//! second one (the same fields of the same types, with the same defaults), then an object that the first
//! schema leaves alone is converted to one that the second leaves alone, and since every rule can be undone,
//! back to itself. Other keywords (descriptions, limits, rules) decide which values are
//! valid, not which survive, and are ignored.

use super::pair::{Move, Only, Pair};
use super::path::{Items, Keys, node};
use crate::apimachinery::value::{Map, Str, Value};
use crate::interrupt::checkpoint;
use std::collections::HashSet;
use std::fmt;

/// Maximum number of reasons reported for a pair.
const REASONS: usize = 10;

/// Marks a schema whose values were renamed.
const RENAMED: &str = "renamed";

/// The keywords that pruning and defaulting read.
const SHAPE: [&str; 7] = [
    "type",
    "nullable",
    "default",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-preserve-unknown-fields",
    "enum",
];

/// A reason why objects may change on a round trip, for the author of the rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reason(String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reasons why objects may change on a round trip; empty if they do not.
pub(super) fn losses(pair: &Pair, from: &Value, to: &Value) -> Vec<Reason> {
    let names = [&*pair.sides[0].version, &*pair.sides[1].version];
    let mut reasons = Vec::new();
    let mut shapes = [shape(from), shape(to)];
    // Metadata and identity are the same in all versions, and rules cannot reach them.
    for shape in &mut shapes {
        for key in ["apiVersion", "kind", "metadata"] {
            shape.unset(&["properties", key]);
        }
    }
    distinct(pair, &mut reasons);
    // The fields of only one version are compared with their rules and set aside.
    for (side, shape) in pair.sides.iter().zip(&mut shapes) {
        for only in &side.only {
            let taken = take(shape, &only.path, &side.version);
            match taken.and_then(|field| alone(only, &field, &side.version)) {
                Ok(()) => {}
                Err(why) => reasons.push(why),
            }
        }
    }
    // A field of one version needs an object in both, or its value is lost in the conversion back.
    for only in pair.sides.iter().flat_map(|s| &s.only) {
        if let Some(around) = only.path.parent()
            && let Some(i) = shapes.iter().position(|s| node(s, &around).is_none())
        {
            let (path, version) = (&only.path, names[i]);
            reasons.push(Reason(format!(
                "{path}: {around} does not exist in {version}: make the rule for that"
            )));
        }
    }
    // Only the first schema is transformed; the second one is the target of the comparison.
    let [mut moved, to] = shapes;
    for renames in &pair.items {
        match items_of(&mut moved, &renames.items) {
            Some(item) => {
                let prefix = renames.items.to_string();
                shift(item, &Value::Null, &renames.moves, names[0], &prefix, &mut reasons);
            }
            None => reasons.push(Reason(format!("{} does not exist in {}", renames.items, names[0]))),
        }
    }
    shift(&mut moved, &to, &pair.moves, names[0], "", &mut reasons);
    if reasons.is_empty() {
        // Only now: a wrong rule would cause differences that say nothing new.
        differences(&moved, &to, "", names, &mut reasons);
    }
    // Reported all or the first ten: the author mends them one after the other.
    reasons.truncate(REASONS);
    reasons
}

/// The part of a schema that decides what survives in an object.
fn shape(schema: &Value) -> Value {
    checkpoint();
    let mut out = Value::object();
    let Some(map) = schema.as_object() else {
        // `additionalProperties: true`
        return schema.clone();
    };
    for (key, value) in map.iter() {
        match key {
            "properties" => {
                let properties = value.as_object().into_iter().flat_map(|m| m.iter());
                let shapes = properties.map(|(name, of)| (Str::new(name), shape(of)));
                out.set(&[key], Value::Object(shapes.collect()));
            }
            "items" | "additionalProperties" => out.set(&[key], shape(value)),
            // Everything else may differ: it decides what is valid, not what survives.
            key if SHAPE.contains(&key) => out.set(&[key], value.clone()),
            _ => {}
        }
    }
    out
}

/// Rules whose paths overlap would disturb each other.
fn distinct(pair: &Pair, reasons: &mut Vec<Reason>) {
    for (i, side) in pair.sides.iter().enumerate() {
        let moved = pair.moves.iter().map(|m| &m.paths[i]);
        let all: Vec<&Keys> = moved.chain(side.only.iter().map(|o| &o.path)).collect();
        // Sets of paths keep both checks linear in the number of rules.
        let ends: HashSet<&[Str]> = all.iter().map(|keys| &*keys.0).collect();
        if ends.len() < all.len() {
            reasons.push(Reason(format!(
                "two rules are about the same field of {}",
                side.version
            )));
        }
        for keys in all {
            // Only ancestors are looked up; two rules about siblings do not disturb each other.
            let mut around = std::iter::successors(keys.parent(), Keys::parent);
            if let Some(outer) = around.find(|outer| ends.contains(&*outer.0)) {
                reasons.push(Reason(format!(
                    "{keys} lies within {outer}, which another rule is about"
                )));
            }
        }
    }
    for renames in &pair.items {
        for i in 0..2 {
            let names: HashSet<_> = renames.moves.iter().map(|m| &m.paths[i].0).collect();
            if names.len() < renames.moves.len() {
                reasons.push(Reason(format!(
                    "two rules are about the same field of {}",
                    renames.items
                )));
            }
        }
    }
}

/// Where the schema of an object's field is.
fn place(keys: &Keys) -> Vec<&str> {
    keys.0.iter().flat_map(|key| ["properties", key.as_str()]).collect()
}

/// The schema of the items at this path.
fn items_of<'s>(root: &'s mut Value, path: &Items) -> Option<&'s mut Value> {
    path.0.iter().try_fold(root, |schema, keys| {
        let list = schema.at_mut(&place(keys))?;
        // A list has `items`; a map of values has `additionalProperties`.
        let of = match list.get("items").is_null() {
            true => "additionalProperties",
            false => "items",
        };
        list.at_mut(&[of])
    })
}

/// Removes the schema of a field, and the objects around it that become empty by that.
fn take(root: &mut Value, keys: &Keys, version: &str) -> Result<Value, Reason> {
    let mut around = std::iter::successors(keys.parent(), Keys::parent);
    let open = |schema: &Value| {
        schema.get("x-kubernetes-preserve-unknown-fields").as_bool() == Some(true)
            || !schema.get("additionalProperties").is_null()
    };
    // Unknown fields could hold the moved name already, and the move would overwrite or lose it.
    if open(root) || around.any(|outer| node(root, &outer).is_some_and(open)) {
        return Err(Reason(format!(
            "{keys}: an object around it takes unknown fields in {version}"
        )));
    }
    root.unset(&place(keys))
        .ok_or_else(|| Reason(format!("{keys} does not exist in {version}")))
}

/// Compares the rule for a field of one version with its schema.
fn alone(only: &Only, field: &Value, version: &str) -> Result<(), Reason> {
    let path = &only.path;
    let default = field.as_object().and_then(|m| m.get("default"));
    if default != only.default.as_ref() {
        return Err(Reason(match &only.default {
            None => format!("{path}: the rule lacks the default that {version} has"),
            Some(_) => format!("{path}: the schema of {version} must have the same default"),
        }));
    }
    // A constant is dropped without being preserved, so the schema must allow nothing else.
    if only.constant && field.get("enum").items() != only.default.as_slice() {
        return Err(Reason(format!(
            "{path}: the enum of {version} must have this value only"
        )));
    }
    Ok(())
}

/// Applies moves to the schema of the first version, `version`. Objects that lose all their fields go, unless
/// the schema of the second one, `other`, has them.
fn shift(root: &mut Value, other: &Value, moves: &[Move], version: &str, prefix: &str, reasons: &mut Vec<Reason>) {
    // All are taken before any is put, as for objects, so that fields can be swapped.
    let mut taken = Vec::with_capacity(moves.len());
    for m in moves {
        match take(root, &m.paths[0], version) {
            Ok(field) => taken.push((m, field)),
            Err(why) => reasons.push(Reason(format!("{prefix}{why}"))),
        }
    }
    for (m, _) in &taken {
        let around = std::iter::successors(m.paths[0].parent(), Keys::parent);
        // Objects that the second version keeps stay, even if empty.
        for keys in around.filter(|keys| node(other, keys).is_none()) {
            drop_if_empty(root, &keys);
        }
    }
    for (m, mut field) in taken {
        let to = &m.paths[1];
        if let Err(why) = rename_values(m, &mut field) {
            reasons.push(Reason(format!("{prefix}{}: {why}", m.paths[0])));
        }
        // The target exists already, so the move would replace another field.
        if node(root, to).is_some() {
            reasons.push(Reason(format!("{prefix}{to} exists in {version} too")));
            continue;
        }
        // Objects created by the move need a type, or the comparison would find it missing.
        for outer in std::iter::successors(to.parent(), Keys::parent) {
            if node(root, &outer).is_none() {
                let mut at = place(&outer);
                at.push("type");
                root.set(&at, "object");
            }
        }
        root.set(&place(to), field);
    }
}

/// Forgets an object that has lost all its fields.
fn drop_if_empty(root: &mut Value, keys: &Keys) {
    let is_bare = node(root, keys).and_then(Value::as_object).is_some_and(|schema| {
        schema.iter().all(|(key, value)| match key {
            "type" => true,
            "properties" => value.as_object().is_some_and(Map::is_empty),
            _ => false,
        })
    });
    if is_bare {
        root.unset(&place(keys));
    }
}

/// Renames the values in a field's schema.
fn rename_values(m: &Move, field: &mut Value) -> Result<(), Reason> {
    if m.values().next().is_none() {
        return Ok(());
    }
    let allowed = field.get("enum").items().to_vec();
    let rename = |v: &Value, forward: bool| {
        checkpoint();
        m.renamed(v.clone(), forward)
    };
    // Renamed there and back: the enum must return to itself, which shows that the names are unambiguous.
    let renamed: Vec<Value> = allowed.iter().map(|v| rename(v, true)).collect();
    let back: Vec<Value> = renamed.iter().map(|v| rename(v, false)).collect();
    let texts: HashSet<&str> = allowed.iter().filter_map(Value::as_str).collect();
    // The first in the order of the rule's map.
    if let Some(a) = m.values().filter(|a| !texts.contains(a.as_str())).min() {
        return Err(Reason(format!("{a:?} is not in its enum")));
    }
    if back != allowed {
        return Err(Reason("two values would have the same name".to_owned()));
    }
    field.set(&["enum"], renamed);
    // Marked, because a renamed enum has to match exactly, while others may differ between versions.
    field.set(&[RENAMED], true);
    if let Some(default) = field.as_object().and_then(|f| f.get("default")).cloned() {
        field.set(&["default"], m.renamed(default, true));
    }
    Ok(())
}

/// Reports where the schemas differ after the rules.
fn differences(moved: &Value, to: &Value, path: &str, names: [&str; 2], reasons: &mut Vec<Reason>) {
    checkpoint();
    if reasons.len() >= REASONS {
        return;
    }
    let shown = if path.is_empty() { "the root" } else { path };
    for key in SHAPE.iter().filter(|key| **key != "enum") {
        if moved.get(key) != to.get(key) {
            reasons.push(Reason(format!(
                "{shown}: {key} differs between {} and {}",
                names[0], names[1]
            )));
        }
    }
    // A value known to the second version only could be mistaken for a renamed one.
    if !moved.get(RENAMED).is_null() {
        let values = |schema: &Value| schema.get("enum").items().iter().cloned().collect::<HashSet<_>>();
        if values(moved) != values(to) {
            reasons.push(Reason(format!(
                "{shown}: its enum in {} must have the values that the rule gives",
                names[1]
            )));
        }
    }
    // Items and values are shown alike in paths: both are `[*]` in rules.
    for (part, suffix) in [("items", "[*]"), ("additionalProperties", "[*]")] {
        match (moved.get(part), to.get(part)) {
            (Value::Object(_), Value::Object(_)) => {
                differences(
                    moved.get(part),
                    to.get(part),
                    &format!("{path}{suffix}"),
                    names,
                    reasons,
                );
            }
            (a, b) if a == b => {}
            _ => reasons.push(Reason(format!(
                "{shown}: {part} differs between {} and {}",
                names[0], names[1]
            ))),
        }
    }
    let fields = |schema: &'_ Value| -> Vec<Str> {
        let properties = schema.get("properties").as_object();
        properties.map_or_else(Vec::new, |m| m.keys().map(Str::new).collect())
    };
    let (ours, theirs) = (moved.get("properties"), to.get("properties"));
    for key in fields(moved) {
        let inner = format!("{path}.{key}");
        match theirs.as_object().and_then(|m| m.get(&key)) {
            Some(other) => differences(ours.get(&key), other, &inner, names, reasons),
            None => reasons.push(Reason(format!(
                "{inner} has no counterpart in {}: it needs a rule",
                names[1]
            ))),
        }
    }
    for key in fields(to) {
        if ours.as_object().is_none_or(|m| !m.contains_key(&key)) {
            reasons.push(Reason(format!(
                "{path}.{key} of {} has no counterpart in {}: it needs a rule",
                names[1], names[0]
            )));
        }
    }
}
