//! Server-side apply and managed fields of objects of a structural schema.

use super::*;
use crate::apimachinery::apply::{ApplyRequest, FieldSet, Writer};

/// An apply of this manager.
pub(super) fn by<'a>(manager: &'a str, force: bool, reset: &'a FieldSet) -> ApplyRequest<'a> {
    ApplyRequest {
        writer: Writer {
            manager,
            subresource: "",
            now: "2024-01-01T00:00:00Z",
            api_version: "example.com/v1",
        },
        force,
        reset,
    }
}

#[test]
fn apply_uses_key_defaults_and_rejects_unknown_fields() {
    let reset = FieldSet::new();
    let request = by("m", false, &reset);
    let patch = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"parts": [{"k": "1", "v": "x"}]}});
    let o = gadget().apply(None, patch.clone(), &request).unwrap();
    assert_eq!(
        o.at(&["metadata", "managedFields"]).items()[0].get("fieldsV1"),
        &json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:parts": {"k:{\"k\":\"1\",\"p\":\"tcp\"}": {".": {}, "f:k": {}, "f:v": {}}}}})
    );
    let mut bad = patch;
    bad.set(&["spec", "unknown"], 1i64);
    let e = gadget().apply(None, bad, &request).unwrap_err();
    assert_eq!(e.code, 500);
    assert_eq!(
        e.message,
        "failed to create typed patch object (/n; example.com/v1, Kind=Gadget): .spec.unknown: field not declared in schema"
    );
}

#[test]
fn an_object_of_wrong_types_loses_its_managed_fields() {
    let reset = FieldSet::new();
    let request = by("m", false, &reset);
    let managed = |live: Option<&Value>, mut object: Value| {
        gadget().manage_update(live, &mut object, &request.writer, &reset);
        object
    };
    let fine = json!({"metadata": {"name": "n"}, "spec": {"size": 1}});
    let tracked = managed(None, fine.clone());
    assert!(!tracked.at(&["metadata", "managedFields"]).items().is_empty());
    let mut wrong = tracked.clone();
    wrong.set(&["spec", "size"], json!(["x"]));
    assert!(
        managed(Some(&tracked), wrong.clone())
            .at(&["metadata", "managedFields"])
            .is_null()
    );
    assert!(
        managed(Some(&wrong), tracked)
            .at(&["metadata", "managedFields"])
            .is_null()
    );
}

#[test]
fn apply_accepts_any_scalar_for_a_string_with_a_format() {
    let reset = FieldSet::new();
    let gadget = |format: &str| {
        let text = json!({"type": "string", "format": format});
        let source = json!({"type": "object", "properties": {"t": text}});
        let gvk = GroupVersionKind::new("example.com", "v1", "Gadget");
        KindSchema::parse(gvk, &source, &FieldPath::default())
            .map_err(|e| aggregate(&e))
            .unwrap()
    };
    let apply = |format: &str, value: Value| {
        let patch = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n"}, "t": value});
        let applied = gadget(format).apply(None, patch, &by("m", false, &reset));
        applied.map_or_else(|e| e.message, |_| String::new())
    };
    assert!(apply("date-time", json!(["a"])).ends_with(".t: expected any scalar, got &{[a]}"));
    assert_eq!(apply("date-time", json!(5)), "");
    assert!(apply("byte", json!(5)).contains(".t: expected string, got"));
}
