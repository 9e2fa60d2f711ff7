//! Validation of CustomResourceDefinitions: names, group, scope and versions (upstream's
//! `apiextensions-apiserver/pkg/apis/apiextensions/validation`). Schemas are checked where they are compiled.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{dns1035_label, dns1123_subdomain};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use std::collections::HashSet;

const APPROVED: &str = "api-approved.kubernetes.io";
const PULL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

fn joined(out: &mut ErrorList, at: &FieldPath, value: &str, prefix: &str, messages: Vec<String>) {
    if !messages.is_empty() {
        out.push(FieldError::invalid(
            at,
            value,
            format!("{prefix}{}", messages.join(",")),
        ));
    }
}

pub(super) fn definition(v: &Value) -> ErrorList {
    let mut out = base(v);
    let group = v.str_at(&["spec", "group"]);
    if is_protected(group) {
        approval(&mut out, v);
    }
    out
}

/// Validates a write of the status subresource: the accepted names, which controllers set.
pub(super) fn status(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let at = FieldPath::new("status").child("acceptedNames");
    names(&mut out, v.at(&["status", "acceptedNames"]), &at);
    out
}

fn base(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    let (group, plural) = (spec.str_at(&["group"]), spec.str_at(&["names", "plural"]));
    let expected = format!("{plural}.{group}");
    for key in ["generateName", "name"] {
        let name = v.meta(key);
        if !name.is_empty() && name != expected {
            let at = FieldPath::new("metadata").child(key);
            out.push(FieldError::invalid(
                &at,
                name,
                "must be spec.names.plural+\".\"+spec.group",
            ));
        }
    }
    let at = path.child("group");
    if group.is_empty() {
        out.push(FieldError::required(&at, ""));
    } else {
        let messages = dns1123_subdomain(group);
        if messages.is_empty() && !group.contains('.') {
            out.push(FieldError::invalid(
                &at,
                group,
                "should be a domain with at least one dot",
            ));
        }
        joined(&mut out, &at, group, "", messages);
    }
    let scopes = ["Cluster", "Namespaced"];
    match spec.str_at(&["scope"]) {
        "" => out.push(FieldError::required(&path.child("scope"), "")),
        other if !scopes.contains(&other) => {
            out.push(FieldError::not_supported(&path.child("scope"), other, &scopes));
        }
        _ => {}
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        if spec.get("names").str_at(&[key]).is_empty() {
            out.push(FieldError::required(&path.child("names").child(key), ""));
        }
    }
    names(&mut out, spec.get("names"), &path.child("names"));
    versions(&mut out, v, &path);
    if spec.get("preserveUnknownFields").as_bool() == Some(true) {
        out.push(FieldError::invalid(
            &path.child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    out
}

/// The string elements of an array.
fn strings(v: &Value) -> Vec<&str> {
    v.items().iter().filter_map(Value::as_str).collect()
}

fn names(out: &mut ErrorList, names: &Value, at: &FieldPath) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let text = names.str_at(&[key]);
        let at = at.child(key);
        if text.is_empty() {
            continue;
        }
        let mixed = key.ends_with("ind");
        let prefix = if mixed {
            "may have mixed case, but should otherwise match: "
        } else {
            ""
        };
        let lower = if mixed { text.to_lowercase() } else { text.to_owned() };
        joined(out, &at, text, prefix, dns1035_label(&lower));
    }
    for key in ["shortNames", "categories"] {
        for (i, s) in strings(names.get(key)).into_iter().enumerate() {
            joined(out, &at.child(key).index(i), s, "", dns1035_label(s));
        }
    }
    if !names.str_at(&["kind"]).is_empty() && names.get("kind") == names.get("listKind") {
        out.push(FieldError::invalid(
            &at.child("listKind"),
            names.str_at(&["listKind"]),
            "kind and listKind may not be the same",
        ));
    }
}

fn versions(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let versions = v.at(&["spec", "versions"]).items();
    let at = path.child("versions");
    let mut seen: HashSet<&str> = HashSet::new();
    let mut unique = true;
    let mut stored: Vec<&str> = Vec::new();
    for (i, x) in versions.iter().enumerate() {
        checkpoint();
        let at = at.index(i);
        let name = x.str_at(&["name"]);
        if x.get("storage").as_bool() == Some(true) {
            stored.push(name);
        }
        unique &= seen.insert(name);
        joined(out, &at.child("name"), name, "", dns1035_label(name));
        if let Some(warning) = x.get("deprecationWarning").as_str() {
            let at = at.child("deprecationWarning");
            if x.get("deprecated").as_bool() != Some(true) {
                out.push(FieldError::invalid(
                    &at,
                    warning,
                    "can only be set for deprecated versions",
                ));
            }
            if warning.len() > 256 {
                out.push(FieldError::invalid(&at, warning, "must be <= 256 characters long"));
            }
            if warning.is_empty() {
                out.push(FieldError::invalid(&at, warning, "must not be an empty string"));
            }
        }
        if x.at(&["schema", "openAPIV3Schema"]).is_null() {
            out.push(FieldError::required(
                &at.child("schema").child("openAPIV3Schema"),
                "schemas are required",
            ));
        }
    }
    let shown = || hub_versions(versions);
    if !unique {
        out.push(FieldError::invalid_raw(
            &at,
            shown(),
            "must contain unique version names",
        ));
    }
    if stored.len() != 1 {
        out.push(FieldError::invalid_raw(
            &at,
            shown(),
            "must have exactly one version marked as storage version",
        ));
    }
    stored_versions(out, v, &stored, &seen);
}

fn stored_versions(out: &mut ErrorList, v: &Value, storage: &[&str], known: &HashSet<&str>) {
    let at = FieldPath::new("status").child("storedVersions");
    let list = v.at(&["status", "storedVersions"]);
    let stored = strings(list);
    if stored.is_empty() {
        out.push(FieldError::invalid(
            &at,
            list.clone(),
            "must have at least one stored version",
        ));
    }
    let all: HashSet<&str> = stored.iter().copied().collect();
    if let Some(missing) = storage.iter().rev().find(|s| !all.contains(**s))
        && !stored.is_empty()
    {
        out.push(FieldError::invalid(
            &at,
            list.clone(),
            format!("must have the storage version {missing}"),
        ));
    }
    for (i, s) in stored.iter().enumerate().filter(|(_, s)| !known.contains(**s)) {
        out.push(FieldError::invalid(
            &at.index(i),
            *s,
            format!("missing from spec.versions; {s} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {s} and removes {s} from status.storedVersions"),
        ));
    }
}

/// Formats versions like upstream's internal type. `Schema` is always null there: the conversion moves identical
/// per-version schemas to the top level.
fn hub_versions(versions: &[Value]) -> String {
    use crate::apimachinery::codec::json;
    let member = |v: &Value, key: &str| json::to_string(v.get(key));
    let flag = |v: &Value, key: &str| v.get(key).as_bool() == Some(true);
    let all: Vec<String> = versions
        .iter()
        .map(|v| {
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                member(v, "name"),
                flag(v, "served"),
                flag(v, "storage"),
                flag(v, "deprecated"),
                member(v, "deprecationWarning"),
            )
        })
        .collect();
    format!("[{}]", all.join(","))
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|g| group == *g || group.strip_suffix(g).is_some_and(|rest| rest.ends_with('.')))
}

fn approval(out: &mut ErrorList, v: &Value) {
    let at = FieldPath::new("metadata").child("annotations").key(APPROVED);
    match v.annotation(APPROVED).unwrap_or("") {
        "" => out.push(FieldError::required(
            &at,
            format!("protected groups must have approval annotation \"{APPROVED}\", {PULL}"),
        )),
        text if text.starts_with("unapproved") || is_url(text) => {}
        text => out.push(FieldError::invalid(
            &at,
            text,
            format!("protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \"unapproved\", {PULL}"),
        )),
    }
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>()
        .is_ok_and(|u| u.scheme().is_some() && u.host().is_some())
}

pub(super) fn definition_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = base(new);
    if old.at(&["spec", "preserveUnknownFields"]).as_bool() == Some(true) {
        // A definition stored with the field set (from v1beta1) may keep it.
        out.retain(|e| e.field != "spec.preserveUnknownFields");
    }
    let conditions = old.at(&["status", "conditions"]).items().iter();
    let established = conditions
        .filter(|c| c.str_at(&["type"]) == "Established")
        .any(|c| c.str_at(&["status"]) == "True");
    let mut immutable = |path: &[&str]| {
        if new.at(path) != old.at(path) {
            let at = path[1..].iter().fold(FieldPath::new(path[0]), |p, k| p.child(k));
            out.push(FieldError::invalid(&at, new.at(path).clone(), "field is immutable"));
        }
    };
    if established {
        immutable(&["spec", "scope"]);
        immutable(&["spec", "names", "kind"]);
    }
    immutable(&["spec", "group"]);
    immutable(&["spec", "names", "plural"]);
    if is_protected(new.str_at(&["spec", "group"])) && new.annotation(APPROVED) != old.annotation(APPROVED) {
        approval(&mut out, new);
    }
    out
}

/// Unrecognized `format`s in the schemas, in document order, without duplicates.
pub(super) fn unknown_formats(v: &Value) -> Vec<String> {
    const KNOWN: [&str; 29] = [
        "bsonobjectid",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "hexcolor",
        "rgbcolor",
        "byte",
        "password",
        "date",
        "duration",
        "datetime",
        "date-time",
        "int32",
        "int64",
        "float",
        "double",
    ];
    fn walk<'v>(schema: &'v Value, seen: &mut HashSet<&'v str>, out: &mut Vec<String>) {
        checkpoint();
        if schema.as_object().is_none() {
            return;
        }
        let format = schema.str_at(&["format"]);
        let known = KNOWN.contains(&format) || matches!(format, "k8s-short-name" | "k8s-long-name");
        if !format.is_empty() && !known && seen.insert(format) {
            out.push(format.to_owned());
        }
        for key in ["properties", "patternProperties", "definitions"] {
            schema
                .get(key)
                .as_object()
                .into_iter()
                .flat_map(|m| m.values())
                .for_each(|s| walk(s, seen, out));
        }
        for key in ["items", "additionalProperties", "not"] {
            walk(schema.get(key), seen, out);
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            schema.get(key).items().iter().for_each(|s| walk(s, seen, out));
        }
    }
    let (mut seen, mut out) = (HashSet::new(), Vec::new());
    for version in v.at(&["spec", "versions"]).items() {
        walk(version.at(&["schema", "openAPIV3Schema"]), &mut seen, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn crd() -> Value {
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"storedVersions": ["v1"]}})
    }

    #[test]
    fn minimal_definition_is_valid() {
        assert_eq!(aggregate(&definition(&crd())), "[]");
    }

    #[test]
    fn exactly_one_version_is_stored() {
        let mut v = crd();
        v.set(
            &["spec", "versions"],
            json!([{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {}}}]),
        );
        v.set(&["status", "storedVersions"], Value::Null);
        assert_eq!(
            aggregate(&definition(&v)),
            "[spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version, status.storedVersions: Invalid value: null: must have at least one stored version]"
        );
    }

    #[test]
    fn unknown_formats_are_found_at_any_depth() {
        let mut v = crd();
        let schema = json!({"properties": {"a": {"items": {"format": "odd"}}, "b": {"format": "date-time", "anyOf": [{"format": "odd"}, {"format": "strange"}]}}});
        v.set(&["spec", "versions"], json!([{"name": "v1"}]));
        let mut version = json!({"name": "v1"});
        version.set(&["schema", "openAPIV3Schema"], schema);
        v.set(&["spec", "versions"], vec![version]);
        assert_eq!(unknown_formats(&v), ["odd", "strange"]);
        assert!(unknown_formats(&json!({})).is_empty());
    }

    #[test]
    fn group_and_plural_are_immutable() {
        let mut v = crd();
        v.set(&["spec", "scope"], "Cluster");
        assert!(definition_update(&v, &crd()).is_empty());
        v.set(&["spec", "group"], "other.com");
        assert!(definition_update(&v, &crd()).iter().any(|e| e.field == "spec.group"));
        assert!(is_protected("apps.k8s.io") && !is_protected("notk8s.io"));
    }
}
