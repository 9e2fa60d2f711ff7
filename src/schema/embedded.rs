//! Embedded objects (`x-kubernetes-embedded-resource`): upstream's
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta`.

use super::path::At;
use super::{Additional, Node};
use crate::api::{self, decode};
use crate::apimachinery::codec::strict_errors::StrictErrors;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta};
use crate::apimachinery::validation::{dns1035_label, name_is_path_segment};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Decodes the metadata of embedded objects below `base` as `ObjectMeta`. Unknown keys are removed and
/// returned. With `root`, `v` itself is an object with metadata.
///
/// # Errors
/// The first value of a wrong type.
pub(super) fn coerce(node: &Node, v: &mut Value, base: &FieldPath, root: bool) -> Result<Vec<String>, FieldError> {
    let mut found = StrictErrors::default();
    // Most schemas have no embedded objects and are not walked at all.
    if root || node.has_embedded {
        coerce_below(node, v, &At::ROOT, root, base, &mut found)?;
    }
    let mut found = found.into_texts();
    // Upstream sorts the paths, since it iterates over Go maps.
    found.sort_unstable();
    Ok(found)
}

fn coerce_below(
    node: &Node,
    v: &mut Value,
    at: &At<'_>,
    root: bool,
    base: &FieldPath,
    found: &mut StrictErrors,
) -> Result<(), FieldError> {
    checkpoint();
    match v {
        Value::Object(m) => {
            for (key, child) in m.iter_mut() {
                if node.embedded || root {
                    match (key, &*child) {
                        ("apiVersion" | "kind", other) if other.as_str().is_none() => {
                            let path = at.name(key).below(base);
                            // The first wrong type ends the decoding, as in upstream.
                            return Err(FieldError::invalid(&path, other.clone(), "must be a string"));
                        }
                        ("metadata", _) => metadata(child, &at.name(key).below(base), found)?,
                        _ => {}
                    }
                }
                match (node.property(key), &node.additional) {
                    (Some(property), _) => coerce_below(property, child, &at.name(key), false, base, found)?,
                    (None, Additional::Schema(of)) => coerce_below(of, child, &at.key(key), false, base, found)?,
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &node.items {
                for (i, item) in items.iter_mut().enumerate() {
                    coerce_below(of, item, &at.index(i), false, base, found)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn metadata(v: &mut Value, path: &FieldPath, found: &mut StrictErrors) -> Result<(), FieldError> {
    // As Go decodes null into a struct.
    if v.is_null() {
        *v = Value::object();
        return Ok(());
    }
    // The table always has ObjectMeta: built-in kinds embed it.
    let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
    let mut typed = v.clone();
    let unknown = decode::normalize_under(path.as_str(), def, &mut typed)
        .map_err(|e| FieldError::invalid(path, v.clone(), e.to_string()))?;
    // Go encodes an unset time as null, which upstream removes again.
    if typed.get("creationTimestamp").is_null() {
        typed.unset(&["creationTimestamp"]);
    }
    *v = typed;
    found.extend(unknown);
    Ok(())
}

/// Validates `apiVersion`, `kind` and `metadata` of embedded objects below `base`. With `root`, `v` itself is
/// an object with metadata.
pub(super) fn validate(node: &Node, v: &Value, base: &FieldPath, root: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    if root || node.has_embedded {
        validate_below(node, v, &At::ROOT, root, base, &mut errors);
    }
    errors
}

fn validate_below(node: &Node, v: &Value, at: &At<'_>, root: bool, base: &FieldPath, errors: &mut ErrorList) {
    checkpoint();
    match v {
        Value::Object(m) => {
            if node.embedded || root {
                object(v, &at.below(base), errors);
            }
            for (key, child) in m.iter() {
                match (node.property(key), &node.additional) {
                    (Some(property), _) => validate_below(property, child, &at.name(key), false, base, errors),
                    (None, Additional::Schema(of)) => validate_below(of, child, &at.key(key), false, base, errors),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &node.items {
                for (i, item) in items.iter().enumerate() {
                    validate_below(of, item, &at.index(i), false, base, errors);
                }
            }
        }
        _ => {}
    }
}

fn object(v: &Value, path: &FieldPath, errors: &mut ErrorList) {
    let m = v.as_object();
    for key in ["apiVersion", "kind"] {
        let at = path.child(key);
        let text = match m.and_then(|m| m.get(key)) {
            // Presence is checked on the map, because `get` cannot tell null from absent.
            None => {
                errors.push(FieldError::required(&at, ""));
                continue;
            }
            Some(Value::String(text)) => text,
            Some(other) => {
                errors.push(FieldError::invalid(&at, other.clone(), "must be a string"));
                continue;
            }
        };
        if text.is_empty() {
            errors.push(FieldError::invalid(&at, "", "must not be empty"));
        } else if key == "kind" {
            // Kinds are CamelCase, so the label is checked in lower case.
            let why = dns1035_label(&text.to_lowercase());
            if !why.is_empty() {
                let why = format!("may have mixed case, but should otherwise match: {}", why.join(","));
                errors.push(FieldError::invalid(&at, text.as_str(), why));
            }
        } else if GroupVersion::parse(text).is_none() {
            let why = format!("unexpected GroupVersion string: {text}");
            errors.push(FieldError::invalid(&at, text.as_str(), why));
        }
    }
    let at = path.child("metadata");
    let metadata = v.get("metadata");
    // Absent metadata is valid; upstream only validates what is there.
    if metadata.is_null() {
        return;
    }
    let def = api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
    let mut typed = metadata.clone();
    if let Err(e) = decode::normalize(def, &mut typed) {
        errors.push(FieldError::invalid(&at, metadata.clone(), e.to_string()));
        return;
    }
    if typed.str_at(&["name"]).is_empty() {
        // Upstream's stand-in for a name, which embedded objects do not need.
        typed.set(&["name"], "fakename");
    }
    let rules = MetaRules {
        // Embedded objects may have a namespace or not.
        namespaced: !typed.str_at(&["namespace"]).is_empty(),
        name: name_is_path_segment,
        strict_finalizers: false,
    };
    errors.extend(validate_object_meta(&typed, rules, &at));
}
