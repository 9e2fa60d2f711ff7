//! Embedded objects (`x-kubernetes-embedded-resource`).

use super::{Additional, Node};
use crate::api::{self, decode};
use crate::apimachinery::codec::strict_errors::StrictErrors;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation;
use crate::apimachinery::value::Value;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Calls `f` for every embedded object at or below `v`.
fn each(node: &Node, v: &mut Value, path: &FieldPath, f: &mut dyn FnMut(&FieldPath, &mut Value)) {
    if node.embedded {
        f(path, v);
    }
    match v {
        Value::Object(m) => {
            for (name, property) in &node.properties {
                if let Some(child) = m.get_mut(name) {
                    each(property, child, &path.child(name), f);
                }
            }
            if let Additional::Schema(of) = &node.additional {
                for (key, child) in m.iter_mut() {
                    if node.property(key).is_none() {
                        each(of, child, &path.key(key), f);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &node.items {
                for (i, item) in items.iter_mut().enumerate() {
                    each(of, item, &path.index(i), f);
                }
            }
        }
        _ => {}
    }
}

fn any(node: &Node) -> bool {
    let additional = match &node.additional {
        Additional::Schema(s) => any(s),
        _ => false,
    };
    node.embedded || additional || node.items.as_deref().is_some_and(any) || node.properties.iter().any(|(_, n)| any(n))
}

/// Decodes the metadata of embedded objects as `ObjectMeta`. Unknown keys are removed and returned; values of a wrong
/// type are kept, and [`validate`] reports them.
pub(super) fn coerce(node: &Node, v: &mut Value) -> Vec<String> {
    if !any(node) {
        return Vec::new();
    }
    let mut found = StrictErrors::default();
    let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
    each(node, v, &FieldPath::default(), &mut |path, object| {
        let Some(metadata) = object.as_object_mut().and_then(|m| m.get_mut("metadata")) else {
            return;
        };
        let mut typed = metadata.clone();
        let at = path.child("metadata");
        if let Ok(unknown) = decode::normalize_under(at.as_str(), def, &mut typed) {
            if typed.get("creationTimestamp").is_null() {
                typed.unset(&["creationTimestamp"]);
            }
            *metadata = typed;
            found.extend(unknown);
        }
    });
    found.into_texts()
}

/// Validates `apiVersion`, `kind` and `metadata` of embedded objects.
pub(super) fn validate(node: &Node, v: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if !any(node) {
        return errors;
    }
    let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
    // `each` needs mutable access for `coerce`; validation works on a copy.
    let mut scratch = v.clone();
    each(node, &mut scratch, &FieldPath::default(), &mut |path, object| {
        if object.as_object().is_none() {
            return;
        }
        for key in ["apiVersion", "kind"] {
            let at = path.child(key);
            match object.get(key) {
                Value::Null => errors.push(FieldError::required(&at, "must not be empty")),
                Value::String(s) if s.is_empty() => errors.push(FieldError::required(&at, "must not be empty")),
                Value::String(s) if key == "kind" => {
                    for why in validation::dns1035_label(&s.to_lowercase()) {
                        let why = format!("may have mixed case, but should otherwise match: {why}");
                        errors.push(FieldError::invalid(&at, s.as_str(), why));
                    }
                }
                Value::String(_) => {}
                other => errors.push(FieldError::invalid(&at, other.clone(), "must be a string")),
            }
        }
        let at = path.child("metadata");
        let metadata = object.get("metadata").clone();
        if !metadata.is_null()
            && let Err(e) = decode::normalize(def, &mut metadata.clone())
        {
            errors.push(FieldError::invalid(&at, metadata, e.to_string()));
        }
    });
    errors
}
