//! Ratcheting: which old value corresponds to a new one, and whether the two are the same (upstream's
//! `k8s.io/apiserver/pkg/cel/common/equality.go`).

use super::{ListKind, Node};
use crate::apimachinery::value::{Str, Value};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

/// The old items of a list of type map, by their keys. If several items have the same keys, the first one is used.
#[derive(Default)]
pub(super) struct OldItems<'a> {
    keys: &'a [Str],
    items: HashMap<Vec<&'a Value>, &'a Value>,
}

impl<'a> OldItems<'a> {
    pub(super) fn new(keys: &'a [Str], items: &'a [Value]) -> Self {
        let mut out = Self {
            keys,
            items: HashMap::new(),
        };
        for item in items {
            if let Some(key) = key_of(keys, item) {
                // The first of equal keys counts, as in upstream's map construction.
                out.items.entry(key).or_insert(item);
            }
        }
        out
    }

    /// The old item with the keys of `item`.
    pub(super) fn find(&self, item: &Value) -> Option<&'a Value> {
        // Saves computing keys for lists without old items, which is every create.
        if self.items.is_empty() {
            return None;
        }
        let key: Vec<&Value> = key_of(self.keys, item)?;
        self.items.get(&key as &[&Value]).copied()
    }
}

/// The values of an item's keys; `None` unless all are present and scalar.
fn key_of<'v>(keys: &[Str], item: &'v Value) -> Option<Vec<&'v Value>> {
    let item = item.as_object()?;
    let scalar = |v: &&Value| !matches!(v, Value::Null | Value::Array(_) | Value::Object(_));
    let values = keys.iter().map(|k| item.get(k).filter(scalar));
    // Without keys nothing identifies an item.
    values.collect::<Option<Vec<_>>>().filter(|v| !v.is_empty())
}

/// True if `new` equals `old` as upstream compares them: members that the schema does not declare make two
/// objects differ, and the order of a list of type map is of no importance.
pub(super) fn unchanged(node: &Node, new: &Value, old: &Value) -> bool {
    checkpoint();
    match (new, old) {
        (Value::Object(n), Value::Object(o)) => {
            let same = |(key, v): (&str, &Value)| {
                // An undeclared member has no schema to compare by, so the objects count as different.
                let pair = o.get(key).zip(node.member(key));
                pair.is_some_and(|(old, schema)| unchanged(schema, v, old))
            };
            // Equal numbers of members, and every new one has an equal old one.
            n.len() == o.len() && n.iter().all(same)
        }
        (Value::Array(n), Value::Array(o)) => match (&node.list, &node.items) {
            (ListKind::Map(keys), Some(of)) => {
                let before = OldItems::new(keys, o);
                let same = |item: &Value| before.find(item).is_some_and(|old| unchanged(of, item, old));
                n.len() == o.len() && n.iter().all(same)
            }
            // Sets and atomic lists are compared in order.
            _ => n == o,
        },
        _ => new == old,
    }
}
