//! Uniqueness of the entries in lists of type set and map (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype`).

use super::path::At;
use super::{Additional, ListKind, Node};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::{Map, Str, Value};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

/// Reports duplicates below `v`. If `old` has any duplicates, those in `v` are ignored (ratcheting).
pub(super) fn validate(node: &Node, v: &Value, old: Option<&Value>) -> ErrorList {
    let errors_in = |v: &Value| {
        let mut errors = ErrorList::new();
        below(node, v, &At::ROOT, &mut errors);
        errors
    };
    let errors = errors_in(v);
    // The old object is only examined if the new one has duplicates.
    if !errors.is_empty() && old.is_some_and(|old| !errors_in(old).is_empty()) {
        return ErrorList::new();
    }
    errors
}

fn below(node: &Node, v: &Value, at: &At<'_>, errors: &mut ErrorList) {
    checkpoint();
    match v {
        Value::Object(m) => {
            for (key, child) in m.iter() {
                // Declared properties take precedence over `additionalProperties`.
                match (node.property(key), &node.additional) {
                    (Some(property), _) => below(property, child, &at.name(key), errors),
                    (None, Additional::Schema(of)) => below(of, child, &at.key(key), errors),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListKind::Atomic => {}
                ListKind::Set => {
                    for i in second_places(items.iter().map(Key::of)) {
                        duplicate(at, i, || items[i].clone(), errors);
                    }
                }
                ListKind::Map(keys) => map(keys, items, at, errors),
            }
            if let Some(of) = &node.items {
                for (i, item) in items.iter().enumerate() {
                    below(of, item, &at.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn duplicate(at: &At<'_>, i: usize, value: impl FnOnce() -> Value, errors: &mut ErrorList) {
    errors.push_with(|| FieldError::duplicate(&at.index(i).below(&FieldPath::default()), value()));
}

fn map(keys: &[Str], items: &[Value], at: &At<'_>, errors: &mut ErrorList) {
    let odd = |v: &&Value| !matches!(v, Value::Object(_) | Value::Null);
    // One wrong item makes the keys of all meaningless, so only this error is reported.
    if let Some(i) = items.iter().position(|v| odd(&v)) {
        let path = at.index(i).below(&FieldPath::default());
        let why = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path, items[i].clone(), why));
        return;
    }
    let key_of = |item: &Value| -> Value {
        let m = item.as_object();
        let mut pairs = Vec::with_capacity(keys.len());
        // Absent keys are left out, so two items without a key are equal in it.
        pairs.extend(keys.iter().filter_map(|k| Some((k.clone(), m?.get(k)?.clone()))));
        Value::Object(Map::from_pairs(pairs))
    };
    for i in second_places(items.iter().map(|item| Key::compound(&key_of(item)))) {
        duplicate(at, i, || key_of(&items[i]), errors);
    }
}

/// The identity of an entry. Compound values are equal if their JSON is.
#[derive(PartialEq, Eq, Hash)]
enum Key<'v> {
    Scalar(&'v Value),
    Compound(Box<str>),
}

impl<'v> Key<'v> {
    fn of(v: &'v Value) -> Self {
        match v {
            Value::Object(_) | Value::Array(_) => Self::compound(v),
            // Borrowed scalars need no allocation; containers are compared by their text.
            scalar => Self::Scalar(scalar),
        }
    }

    fn compound(v: &Value) -> Self {
        Self::Compound(json::to_string(v).into())
    }
}

/// The index at which each repeated key occurs for the second time.
fn second_places<'v>(keys: impl Iterator<Item = Key<'v>>) -> Vec<usize> {
    let mut times: HashMap<Key<'v>, u32> = HashMap::new();
    let mut out = Vec::new();
    for (i, key) in keys.enumerate() {
        let times = times.entry(key).or_default();
        *times += 1;
        // Upstream reports each value once, at its second place.
        if *times == 2 {
            out.push(i);
        }
    }
    out
}
