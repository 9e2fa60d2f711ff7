//! Removes fields that a schema does not have (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning`).

use super::{Additional, Node};
use crate::apimachinery::codec::strict_errors::StrictErrors;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use std::fmt::Write;

/// True for the keys that every object has, even if its schema does not declare them.
pub(super) fn is_object_key(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Removes unknown fields below `v` and returns their sorted paths, at most as many as [`StrictErrors`]
/// keeps. `resource` is true if `v` is an object with metadata.
pub(super) fn unknown(node: &Node, v: &mut Value, resource: bool) -> Vec<String> {
    let mut pruner = Pruner {
        path: String::new(),
        found: StrictErrors::default(),
    };
    pruner.below(Some(node), v, resource, false);
    let mut found = pruner.found.into_texts();
    // Sorted because upstream collects from Go maps.
    found.sort_unstable();
    found
}

struct Pruner {
    path: String,
    found: StrictErrors,
}

enum Member<'a> {
    Declared(Option<&'a Node>),
    Preserved,
    Unknown,
}

impl Pruner {
    /// `node` is `None` where there is no schema; objects there lose all keys. `preserve` is true for items
    /// of a list that preserves unknown fields.
    fn below(&mut self, node: Option<&Node>, v: &mut Value, resource: bool, preserve: bool) {
        checkpoint();
        // Inherited by items only: properties of an object decide for themselves.
        let preserve = preserve || node.is_some_and(|n| n.preserve_unknown);
        let resource = resource || node.is_some_and(|n| n.embedded);
        match v {
            Value::Object(m) => m.retain(|key, child| {
                if resource && is_object_key(key) {
                    // Kept without descending: metadata is validated as ObjectMeta.
                    return true;
                }
                let length = self.path.len();
                // One path buffer for the whole walk, which is truncated on the way back.
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(key);
                let keep = match member(node, key, preserve) {
                    Member::Declared(schema) => {
                        self.below(schema, child, false, false);
                        true
                    }
                    Member::Preserved => true,
                    Member::Unknown => {
                        // At the top level upstream removes these silently if there is no object with metadata.
                        if !(length == 0 && is_object_key(key)) {
                            self.found.add(|| self.path.clone());
                        }
                        false
                    }
                };
                self.path.truncate(length);
                keep
            }),
            Value::Array(items) => {
                let of = node.and_then(|n| n.items.as_deref());
                // Without a schema for its items, a preserving list is kept as it is.
                if of.is_none() && preserve {
                    return;
                }
                for (i, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    let _ = write!(self.path, "[{i}]");
                    self.below(of, item, false, preserve);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }
}

fn member<'a>(node: Option<&'a Node>, key: &str, preserve: bool) -> Member<'a> {
    let Some(node) = node else { return Member::Unknown };
    match (node.property(key), &node.additional) {
        (Some(property), _) => Member::Declared(Some(property)),
        (None, Additional::Schema(of)) => Member::Declared(Some(of)),
        // Even `additionalProperties: false` keeps the key, as upstream, but prunes its value.
        (None, Additional::Any(_)) => Member::Declared(None),
        (None, Additional::Absent) if preserve => Member::Preserved,
        (None, Additional::Absent) => Member::Unknown,
    }
}

/// Removes nulls of members that are not nullable and have no default.
pub(super) fn nulls(node: &Node, v: &mut Value) {
    checkpoint();
    match v {
        Value::Object(m) => m.retain(|key, child| match node.member(key) {
            // With a default, the null stays: defaulting replaces it.
            Some(s) if s.rejects_null(child) => s.default.is_some(),
            Some(s) => {
                nulls(s, child);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(of) = &node.items {
                for item in items {
                    nulls(of, item);
                }
            }
        }
        _ => {}
    }
}
