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
                    for i in second_places(items.iter()) {
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
    if let Some(i) = items.iter().position(|v| odd(&v)) {
        let path = at.index(i).below(&FieldPath::default());
        let why = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path, items[i].clone(), why));
        return;
    }
    let key_of = |item: &Value| -> Value {
        let m = item.as_object();
        let pairs = keys.iter().filter_map(|k| Some((k.clone(), m?.get(k)?.clone())));
        Value::Object(pairs.collect::<Map>())
    };
    let all: Vec<Value> = items.iter().map(key_of).collect();
    for i in second_places(all.iter()) {
        duplicate(at, i, || all[i].clone(), errors);
    }
}

/// The index at which each repeated value occurs for the second time. Compound values are equal if their JSON is.
fn second_places<'v>(values: impl Iterator<Item = &'v Value>) -> Vec<usize> {
    let mut scalars: HashMap<&Value, u32> = HashMap::new();
    let mut compounds: HashMap<String, u32> = HashMap::new();
    let mut out = Vec::new();
    for (i, v) in values.enumerate() {
        let times = match v {
            Value::Object(_) | Value::Array(_) => compounds.entry(json::to_string(v)).or_default(),
            scalar => scalars.entry(scalar).or_default(),
        };
        *times += 1;
        if *times == 2 {
            out.push(i);
        }
    }
    out
}
