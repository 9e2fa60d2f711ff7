//! Removes fields that a schema does not have (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning`).

use super::{Additional, Node};
use crate::apimachinery::codec::strict_errors::StrictErrors;
use crate::apimachinery::value::Value;

/// True for the keys that every object has, whatever its schema says.
fn is_object_key(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Removes unknown fields below `v` and returns their sorted paths, at most as many as [`StrictErrors`] keeps.
/// `resource` is true if `v` is an object with metadata.
pub(super) fn unknown(node: &Node, v: &mut Value, resource: bool) -> Vec<String> {
    let mut found = StrictErrors::default();
    below(Some(node), v, resource, &mut String::new(), &mut found);
    let mut found = found.into_texts();
    found.sort_unstable();
    found
}

/// `node` is `None` where there is no schema; objects there lose all keys.
fn below(node: Option<&Node>, v: &mut Value, resource: bool, path: &mut String, found: &mut StrictErrors) {
    let resource = resource || node.is_some_and(|n| n.embedded);
    match v {
        Value::Object(m) => m.retain(|key, child| {
            if resource && is_object_key(key) {
                return true;
            }
            let len = path.len();
            if len > 0 {
                path.push('.');
            }
            path.push_str(key);
            let keep = match member(node, key) {
                Member::Schema(s) => {
                    below(s, child, false, path, found);
                    true
                }
                Member::Preserved => true,
                Member::Unknown => {
                    if !(len == 0 && is_object_key(key)) {
                        found.add(|| path.clone());
                    }
                    false
                }
            };
            path.truncate(len);
            keep
        }),
        Value::Array(items) => {
            let of = node.and_then(|n| n.items.as_deref());
            if of.is_none() && node.is_some_and(|n| n.preserve_unknown) {
                return;
            }
            for (i, item) in items.iter_mut().enumerate() {
                let len = path.len();
                path.push_str(&format!("[{i}]"));
                below(of, item, false, path, found);
                path.truncate(len);
            }
        }
        _ => {}
    }
}

enum Member<'a> {
    Schema(Option<&'a Node>),
    Preserved,
    Unknown,
}

fn member<'a>(node: Option<&'a Node>, key: &str) -> Member<'a> {
    let Some(node) = node else { return Member::Unknown };
    if let Some(p) = node.member(key) {
        return Member::Schema(Some(p));
    }
    match node.additional {
        _ if node.preserve_unknown => Member::Preserved,
        // Even `additionalProperties: false` keeps the key, as upstream, but not what is below it.
        Additional::Any(_) => Member::Schema(None),
        _ => Member::Unknown,
    }
}

/// Removes nulls of members that are not nullable and have no default.
pub(super) fn nulls(node: &Node, v: &mut Value) {
    match v {
        Value::Object(m) => m.retain(|key, child| match node.member(key) {
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
