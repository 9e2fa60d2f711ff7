//! Validation of `metadata` on create and update (upstream: `pkg/api/validation/objectmeta.go`).
//!
//! Start at [`validate_object_meta`] and [`validate_object_meta_update`].

use super::{NameFn, NameForm, label_value, name_is_dns_label, name_is_path_segment, qualified_name};
use crate::field::{ErrorList, FieldError, FieldPath, is_printable, quote, show};
use crate::gvk::GroupVersion;
use crate::interrupt::checkpoint;
use crate::value::{Map, Value};
use std::cell::LazyCell;
use std::collections::HashSet;

/// Maximum total size of all annotation keys and values.
pub(crate) const ANNOTATIONS_MAX: usize = 256 * 1024;
const IMMUTABLE: &str = "field is immutable";

/// The ways in which the validation of `metadata` differs between kinds.
#[derive(Clone, Copy)]
pub struct MetaRules {
    /// Whether objects of the kind are namespaced.
    pub namespaced: bool,
    /// The check of names.
    pub name: NameFn,
    /// Requires finalizers to be well-known or domain-qualified: true for most built-in kinds, false for
    /// custom resources.
    pub strict_finalizers: bool,
}

impl MetaRules {
    /// The rules the generic registry applies to every kind after the kind's own validation has passed.
    pub const fn generic(namespaced: bool) -> Self {
        Self {
            namespaced,
            name: name_is_path_segment,
            strict_finalizers: false,
        }
    }
}

/// Validates the metadata of a new object (`ValidateObjectMeta`); `path` is usually `metadata`.
pub fn validate_object_meta(meta: &Value, rules: MetaRules, path: &FieldPath) -> ErrorList {
    let mut out = ErrorList::new();
    let generate = meta.str_at(&["generateName"]);
    if !generate.is_empty() {
        let at = path.child("generateName");
        out.extend(
            (rules.name)(generate, NameForm::Prefix)
                .into_iter()
                .map(|m| FieldError::invalid(&at, generate, m)),
        );
    }
    let (name, at) = (meta.str_at(&["name"]), path.child("name"));
    // Upstream generates names before validation, so an empty name here means that there was no `generateName`
    // either.
    if name.is_empty() {
        out.push(FieldError::required(&at, "name or generateName is required"));
    } else {
        out.extend(
            (rules.name)(name, NameForm::Full)
                .into_iter()
                .map(|m| FieldError::invalid(&at, name, m)),
        );
    }
    let (ns, at) = (meta.str_at(&["namespace"]), path.child("namespace"));
    match (rules.namespaced, ns.is_empty()) {
        (true, true) => out.push(FieldError::required(&at, "")),
        (true, false) => {
            out.extend(
                name_is_dns_label(ns, NameForm::Full)
                    .into_iter()
                    .map(|m| FieldError::invalid(&at, ns, m)),
            );
        }
        (false, false) => out.push(FieldError::forbidden(&at, "not allowed on this type")),
        (false, true) => {}
    }
    let generation = meta.get("generation").as_i64().unwrap_or(0);
    if generation < 0 {
        let why = "must be greater than or equal to 0";
        out.push(FieldError::invalid(&path.child("generation"), generation, why));
    }
    validate_labels(meta.get("labels"), &path.child("labels"), &mut out);
    validate_annotations(meta.get("annotations"), &path.child("annotations"), &mut out);
    validate_owner_references(meta.get("ownerReferences"), &path.child("ownerReferences"), &mut out);
    validate_finalizers(meta.get("finalizers"), &path.child("finalizers"), &mut out);
    validate_managed_fields(meta.get("managedFields"), &path.child("managedFields"), &mut out);
    // Last, because upstream runs this in the kind's own validation, after the generic part.
    if rules.strict_finalizers {
        validate_standard_finalizers(meta, path, &mut out);
    }
    out
}

/// Validates the metadata of a changed object against the stored one (`ValidateObjectMetaUpdate`).
pub fn validate_object_meta_update(new: &Value, old: &Value, rules: MetaRules, path: &FieldPath) -> ErrorList {
    let mut out = ErrorList::new();
    // Once deletion has started, finalizers can only be removed.
    if !old.get("deletionTimestamp").is_null() {
        // A set, because both lists are the client's and may be long.
        let had: HashSet<&Value> = old.get("finalizers").items().iter().collect();
        let mut added: Vec<&str> = new
            .get("finalizers")
            .items()
            .iter()
            .filter(|f| !had.contains(f))
            .filter_map(Value::as_str)
            .collect();
        // Upstream's set difference prints sorted.
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let list = added.iter().map(|f| quote(f)).collect::<Vec<_>>().join(", ");
            out.push(FieldError::forbidden(
                &path.child("finalizers"),
                format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"),
            ));
        }
    }
    if new.str_at(&["resourceVersion"]).is_empty() {
        out.push(FieldError::invalid(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    let generation = new.get("generation").as_i64().unwrap_or(0);
    // Absent reads as 0, as in Go.
    if generation < old.get("generation").as_i64().unwrap_or(0) {
        out.push(FieldError::invalid(
            &path.child("generation"),
            generation,
            "must not be decremented",
        ));
    }
    // Identity fields compare as strings: null, absent and empty are the same in Go.
    for key in ["name", "namespace", "uid"] {
        let (a, b) = (new.str_at(&[key]), old.str_at(&[key]));
        if a != b {
            out.push(FieldError::invalid(&path.child(key), a, IMMUTABLE));
        }
    }
    // These are pointers in Go, so absent and set differ.
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (a, b) = (new.get(key), old.get(key));
        if a != b {
            out.push(FieldError::invalid_raw(&path.child(key), show(a), IMMUTABLE));
        }
    }
    validate_labels(new.get("labels"), &path.child("labels"), &mut out);
    validate_annotations(new.get("annotations"), &path.child("annotations"), &mut out);
    validate_owner_references(new.get("ownerReferences"), &path.child("ownerReferences"), &mut out);
    validate_managed_fields(new.get("managedFields"), &path.child("managedFields"), &mut out);
    if rules.strict_finalizers {
        validate_standard_finalizers(new, path, &mut out);
    }
    out
}

fn pairs(v: &Value) -> impl Iterator<Item = (&str, &str)> {
    v.as_object()
        .into_iter()
        .flat_map(Map::iter)
        .map(|(k, v)| (k, v.as_str().unwrap_or("")))
}

/// Validates the keys and values of a label map.
pub fn validate_labels(labels: &Value, path: &FieldPath, out: &mut ErrorList) {
    for (k, v) in pairs(labels) {
        out.extend(qualified_name(k).into_iter().map(|m| FieldError::invalid(path, k, m)));
        out.extend(label_value(v).into_iter().map(|m| FieldError::invalid(path, v, m)));
    }
}

/// Validates annotations: the keys, lower-cased, like those of labels, and the total size.
pub fn validate_annotations(annotations: &Value, path: &FieldPath, out: &mut ErrorList) {
    let mut size = 0;
    for (k, v) in pairs(annotations) {
        size += k.len() + v.len();
        // Upstream lower-cases keys before the check, which therefore allows capitals.
        out.extend(
            qualified_name(&k.to_lowercase())
                .into_iter()
                .map(|m| FieldError::invalid(path, k, m)),
        );
    }
    // The limit is on the sum, so the error belongs to the whole map.
    if size > ANNOTATIONS_MAX {
        out.push(FieldError::too_long(path, ANNOTATIONS_MAX as i64));
    }
}

/// Formats an owner reference like Go, with the fields in declaration order.
fn show_reference(r: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let member = |k: &&str| match r.get(k) {
        // Pointers with `omitempty` disappear; the other fields have no `omitempty` and print as empty strings.
        Value::Null if matches!(*k, "controller" | "blockOwnerDeletion") => None,
        Value::Null => Some(format!("{}:\"\"", quote(k))),
        v => Some(format!("{}:{}", quote(k), crate::codec::json::to_string(v))),
    };
    format!("{{{}}}", fields.iter().filter_map(member).collect::<Vec<_>>().join(","))
}

/// Validates owner references. Upstream's paths have no index.
pub(crate) fn validate_owner_references(refs: &Value, path: &FieldPath, out: &mut ErrorList) {
    let mut controller: Option<&Value> = None;
    // Formatted at most once: every additional controller repeats the whole list in its error.
    let all = LazyCell::new(|| refs.items().iter().map(show_reference).collect::<Vec<_>>().join(","));
    for r in refs.items() {
        checkpoint();
        let api_version = r.str_at(&["apiVersion"]);
        // An unparsable version reads as empty and gets the same error.
        let gv = GroupVersion::parse(api_version).unwrap_or_default();
        if gv.version.is_empty() {
            out.push(FieldError::invalid(
                &path.child("apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if r.str_at(&[key]).is_empty() {
                out.push(FieldError::invalid(&path.child(key), "", "must not be empty"));
            }
        }
        if gv.group.is_empty() && gv.version == "v1" && r.str_at(&["kind"]) == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            out.push(FieldError::invalid_raw(path, show_reference(r), why));
        }
        if r.get("controller").as_bool() == Some(true) {
            match controller {
                None => controller = Some(r),
                Some(first) => {
                    let id = |r: &Value| format!("{}/{}", r.str_at(&["kind"]), r.str_at(&["name"]));
                    // Only built while the list has room: every error repeats all references.
                    out.push_with(|| {
                        let why = format!(
                            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                            id(first),
                            id(r)
                        );
                        FieldError::invalid_raw(path, format!("[{}]", *all), why)
                    });
                }
            }
        }
    }
}

/// Validates finalizers: qualified names, and not both `orphan` and `foregroundDeletion`.
pub(crate) fn validate_finalizers(finalizers: &Value, path: &FieldPath, out: &mut ErrorList) {
    let list = finalizers.items();
    for f in list.iter().filter_map(Value::as_str) {
        out.extend(qualified_name(f).into_iter().map(|m| FieldError::invalid(path, f, m)));
    }
    // Garbage collection cannot both orphan dependents and wait for them.
    let has = |name| list.iter().any(|f| f.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        out.push(FieldError::invalid(path, finalizers.clone(), why));
    }
}

fn validate_standard_finalizers(meta: &Value, path: &FieldPath, out: &mut ErrorList) {
    for (i, f) in meta.get("finalizers").items().iter().enumerate() {
        checkpoint();
        let f = f.as_str().unwrap_or("");
        if !f.contains('/') && !matches!(f, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            out.push(FieldError::invalid(&path.child("finalizers").index(i), f, why));
        }
    }
}

/// Validates the entries of `managedFields`.
pub(crate) fn validate_managed_fields(entries: &Value, path: &FieldPath, out: &mut ErrorList) {
    for (i, e) in entries.items().iter().enumerate() {
        let at = path.index(i);
        let operation = e.str_at(&["operation"]);
        if !matches!(operation, "Apply" | "Update") {
            out.push(FieldError::invalid(
                &at.child("operation"),
                operation,
                "must be `Apply` or `Update`",
            ));
        }
        let fields_type = e.str_at(&["fieldsType"]);
        if !matches!(fields_type, "" | "FieldsV1") {
            out.push(FieldError::invalid(
                &at.child("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        validate_field_manager(e.str_at(&["manager"]), &at.child("manager"), out);
        if e.str_at(&["subresource"]).len() > 256 {
            out.push(FieldError::too_long(&at.child("subresource"), 256));
        }
    }
}

/// Validates a field manager name: at most 128 bytes, printable characters only.
pub fn validate_field_manager(manager: &str, path: &FieldPath, out: &mut ErrorList) {
    if manager.len() > 128 {
        out.push(FieldError::too_long(path, 128));
    }
    for (i, c) in manager.char_indices() {
        if !is_print(c) {
            // The text contains the whole manager name; a name of nothing but control characters must not multiply
            // it.
            out.push_with(|| {
                let why = format!("invalid character U+{:04X} (at position {i})", u32::from(c));
                FieldError::invalid(path, manager, why)
            });
        }
    }
}

/// Go's `unicode.IsPrint`: letters, marks, numbers, punctuation and symbols, and the ASCII space.
pub fn is_print(c: char) -> bool {
    match c.is_ascii() {
        true => c == ' ' || c.is_ascii_graphic(),
        false => is_printable(c),
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_is_dns_subdomain;
    use super::*;
    use crate::json;

    const RULES: MetaRules = MetaRules {
        namespaced: true,
        name: name_is_dns_subdomain,
        strict_finalizers: true,
    };

    fn texts(e: &ErrorList) -> Vec<String> {
        e.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn create_reports_all_errors_in_upstreams_order() {
        let m = json!({
            "generation": -1, "finalizers": ["nodomain"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Event", "name": "p", "uid": "u"},
                {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "r", "uid": "r", "controller": true},
            ],
        });
        assert_eq!(
            texts(&validate_object_meta(&m, RULES, &FieldPath::new("metadata"))),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
                r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"p","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#,
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
                r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Event","name":"p","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"q","uid":"","controller":true},{"apiVersion":"v1","kind":"Pod","name":"r","uid":"r","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for Pod/q and Pod/r"#,
                "metadata.finalizers[0]: Invalid value: \"nodomain\": name is neither a standard finalizer name nor is it fully qualified",
            ]
        );
    }

    #[test]
    fn identity_and_deletion_fields_are_immutable() {
        let old = json!({"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1", "generation": 2,
            "deletionTimestamp": "2001-01-01T00:00:00Z", "finalizers": ["a/b"]});
        let new = json!({"name": "a", "namespace": "n", "uid": "2", "resourceVersion": "1", "generation": 1,
            "finalizers": ["a/b", "example.com/three"]});
        assert_eq!(
            texts(&validate_object_meta_update(
                &new,
                &old,
                RULES,
                &FieldPath::new("metadata")
            )),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/three\"}",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"2\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ]
        );
        assert!(validate_object_meta_update(&old, &old, RULES, &FieldPath::new("metadata")).is_empty());
    }

    #[test]
    fn annotations_share_one_size_limit() {
        let mut out = ErrorList::new();
        let v = "x".repeat(ANNOTATIONS_MAX - 1);
        validate_annotations(&json!({"A": v}), &FieldPath::new("metadata.annotations"), &mut out);
        assert!(out.is_empty());
        validate_annotations(
            &json!({"A": v, "b": ""}),
            &FieldPath::new("metadata.annotations"),
            &mut out,
        );
        assert_eq!(
            texts(&out),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn managers_must_be_printable() {
        let mut out = ErrorList::new();
        validate_field_manager("a\tü\u{a0}", &FieldPath::new("fieldManager"), &mut out);
        assert_eq!(out.len(), 2);
        assert!(out[0].to_string().ends_with("invalid character U+0009 (at position 1)"));
    }
}
