//! Uniqueness of the entries in lists of type set and map.

use super::{Additional, ListKind, Node};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::{Map, Value};

/// Reports duplicates below `v`. If `old` has any duplicates, those in `v` are ignored (ratcheting).
pub(super) fn validate(node: &Node, v: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    below(node, v, &FieldPath::default(), &mut errors);
    if let Some(old) = old
        && !errors.is_empty()
    {
        let mut before = ErrorList::new();
        below(node, old, &FieldPath::default(), &mut before);
        if !before.is_empty() {
            errors.clear();
        }
    }
    errors
}

fn below(node: &Node, v: &Value, path: &FieldPath, errors: &mut ErrorList) {
    match v {
        Value::Object(m) => {
            for (name, property) in &node.properties {
                if let Some(child) = m.get(name) {
                    below(property, child, &path.child(name), errors);
                }
            }
            if let Additional::Schema(of) = &node.additional {
                for (key, child) in m.iter().filter(|(k, _)| node.property(k).is_none()) {
                    below(of, child, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &node.items {
                for (i, item) in items.iter().enumerate() {
                    below(of, item, &path.index(i), errors);
                }
            }
            match &node.list {
                ListKind::Atomic => {}
                ListKind::Set => duplicates(items.iter().cloned().map(Some), path, errors),
                ListKind::Map(keys) => {
                    for (i, item) in items.iter().enumerate() {
                        if !matches!(item, Value::Object(_) | Value::Null) {
                            let why = "must be an object for an array of list-type map";
                            errors.push(FieldError::invalid(&path.index(i), item.clone(), why));
                        }
                    }
                    let key_of = |item: &Value| {
                        let m = item.as_object()?;
                        let pairs = keys.iter().filter_map(|k| m.get(k).map(|v| (k.clone(), v.clone())));
                        Some(Value::Object(pairs.collect::<Map>()))
                    };
                    duplicates(items.iter().map(key_of), path, errors);
                }
            }
        }
        _ => {}
    }
}

/// Reports each repeated value once, at its second position.
fn duplicates(values: impl Iterator<Item = Option<Value>>, path: &FieldPath, errors: &mut ErrorList) {
    let mut seen: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for (i, v) in values.enumerate() {
        let Some(v) = v else { continue };
        let times = seen.entry(crate::apimachinery::codec::json::to_string(&v)).or_default();
        *times += 1;
        if *times == 2 {
            errors.push_with(|| FieldError::duplicate(&path.index(i), v));
        }
    }
}
