//! Applies the defaults of a schema (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting`), as many as fit into memory: a list of a
//! million `{}` and an item schema with a default of a megabyte would not.

use super::limits::MAX_DEFAULTS;
use super::{Additional, Node};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

/// Applies defaults below `v`, including nested defaults of a value that was itself just set, until they have
/// added [`MAX_DEFAULTS`] bytes. At the root, `apiVersion`, `kind` and `metadata` are skipped, because the
/// schema does not own them.
pub(super) fn fill(node: &Node, v: &mut Value, root: bool) {
    Filler { left: MAX_DEFAULTS }.below(node, v, root);
}

/// True if [`fill`] would not change `v`.
pub(super) fn is_filled(node: &Node, v: &Value, root: bool) -> bool {
    checkpoint();
    // A null that the schema rejects is replaced by the default, like an absent member.
    let element = |of: &Node, v: &Value| !(of.default.is_some() && of.rejects_null(v)) && is_filled(of, v, false);
    match v {
        Value::Object(m) => {
            let own = node.properties.iter().filter(|(name, _)| !(root && is_meta(name)));
            let properties = own.clone().all(|(name, property)| match m.get(name) {
                None => property.default.is_none(),
                Some(v) => element(property, v),
            });
            let additional = |of: &Node| {
                m.iter()
                    .filter(|(key, _)| node.property(key).is_none())
                    .all(|(_, v)| element(of, v))
            };
            properties
                && match &node.additional {
                    // Without defaults for additional members there is nothing to fill in.
                    Additional::Schema(of) => additional(of),
                    _ => true,
                }
        }
        Value::Array(items) => node
            .items
            .as_deref()
            .is_none_or(|of| items.iter().all(|item| element(of, item))),
        _ => true,
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Filler {
    /// Bytes that defaults may still add.
    left: usize,
}

impl Filler {
    /// The default of `node`, if it has one and there is room for it.
    fn default(&mut self, node: &Node) -> Option<Value> {
        let default = node.default.as_deref()?;
        // A default that does not fit is left out; `is_filled` then reports the object as incomplete.
        self.left = self.left.checked_sub(default.size)?;
        Some(default.value.clone())
    }

    fn below(&mut self, node: &Node, v: &mut Value, root: bool) {
        checkpoint();
        match v {
            Value::Object(m) => {
                for (name, property) in &node.properties {
                    if root && is_meta(name) {
                        continue;
                    }
                    if property.default.is_some()
                        && m.get(name).is_none_or(|v| property.rejects_null(v))
                        && let Some(default) = self.default(property)
                    {
                        m.insert(name.clone(), default);
                    }
                    // Also below a default that was just set: defaults may be nested.
                    if let Some(child) = m.get_mut(name) {
                        self.below(property, child, false);
                    }
                }
                if let Additional::Schema(of) = &node.additional {
                    for (key, child) in m.iter_mut() {
                        // Declared properties were handled above.
                        if node.property(key).is_none() {
                            self.element(of, child);
                        }
                    }
                }
            }
            Value::Array(items) => {
                if let Some(of) = &node.items {
                    items.iter_mut().for_each(|item| self.element(of, item));
                }
            }
            _ => {}
        }
    }

    fn element(&mut self, of: &Node, v: &mut Value) {
        // Elements of lists and maps cannot be absent, only null.
        if of.rejects_null(v)
            && let Some(default) = self.default(of)
        {
            *v = default;
        }
        self.below(of, v, false);
    }
}
