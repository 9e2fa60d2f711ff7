//! Applies the defaults of a schema (upstream's `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting`).

use super::{Additional, Node};
use crate::apimachinery::value::Value;

/// Applies defaults below `v`, including nested defaults of a value that was itself just set. At the root,
/// `apiVersion`, `kind` and `metadata` are skipped, because the schema does not own them.
pub(super) fn fill(node: &Node, v: &mut Value, root: bool) {
    match v {
        Value::Object(m) => {
            for (name, property) in &node.properties {
                if root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                if let Some(default) = &property.default
                    && m.get(name).is_none_or(|v| property.rejects_null(v))
                {
                    m.insert(name.clone(), default.as_ref().clone());
                }
                if let Some(child) = m.get_mut(name) {
                    fill(property, child, false);
                }
            }
            if let Additional::Schema(of) = &node.additional {
                for (key, child) in m.iter_mut() {
                    if node.property(key).is_none() {
                        element(of, child);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &node.items {
                items.iter_mut().for_each(|item| element(of, item));
            }
        }
        _ => {}
    }
}

fn element(of: &Node, v: &mut Value) {
    if of.rejects_null(v)
        && let Some(default) = &of.default
    {
        *v = default.as_ref().clone();
    }
    fill(of, v, false);
}
