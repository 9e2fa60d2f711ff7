use super::super::check::decode_config;
use super::super::managed::tests::{Toy, writer};
use super::*;
use crate::gvk::GroupVersionKind;
use crate::json;
use crate::status::Cause;

fn applied(live: Option<&Value>, config: Value, manager: &str, force: bool) -> Result<Applied, Status> {
    let reset = FieldSet::of_fields(&[&["status"]]);
    let request = ApplyRequest {
        writer: writer(manager, "2001-01-01T00:00:00Z"),
        force,
        reset: &reset,
    };
    apply(Toy::Object, live, &config, &request)
}

fn names(v: &Value) -> Vec<&str> {
    v.at(&["spec", "items"])
        .items()
        .iter()
        .map(|i| i.str_at(&["name"]))
        .collect()
}

#[test]
fn unapplied_fields_are_removed_unless_owned_by_others() {
    let a = applied(
        None,
        json!({"spec": {"x": 1, "y": 1, "items": [{"name": "i", "v": 1}, {"name": "j", "v": 1}]}}),
        "a",
        false,
    )
    .unwrap()
    .object;
    let b = applied(
        Some(&a),
        json!({"spec": {"y": 1, "items": [{"name": "j", "w": 2}]}}),
        "b",
        false,
    )
    .unwrap()
    .object;
    let c = applied(Some(&b), json!({"spec": {"x": 1}}), "a", false).unwrap().object;
    assert_eq!(
        *c.get("spec"),
        json!({"x": 1, "y": 1, "items": [{"name": "j", "w": 2}]})
    );
    let d = applied(Some(&c), json!({"metadata": {"name": "n"}}), "a", false)
        .unwrap()
        .object;
    assert_eq!(*d.get("spec"), json!({"y": 1, "items": [{"name": "j", "w": 2}]}));
    let managers: Vec<&str> = d
        .at(&["metadata", "managedFields"])
        .items()
        .iter()
        .map(|e| e.str_at(&["manager"]))
        .collect();
    assert_eq!(managers, ["b"]);
}

#[test]
fn reapplying_an_empty_struct_removes_nothing() {
    let live = json!({"metadata": {"uid": "1"}, "spec": {"x": 1, "items": [{"name": "i", "v": 1}]}});
    let once = applied(Some(&live), json!({"spec": {}}), "a", false).unwrap().object;
    assert_eq!(once.get("spec"), live.get("spec"));
    let twice = applied(Some(&once), json!({"spec": {}}), "a", false).unwrap();
    assert!(!twice.changed);
    assert_eq!(twice.object, once);
}

#[test]
fn struct_ownership_survives_when_another_manager_empties_it() {
    let full = applied(None, json!({"spec": {"x": 1}}), "a", false).unwrap().object;
    let both = applied(Some(&full), json!({"spec": {}}), "b", false).unwrap().object;
    let emptied = applied(Some(&both), json!({}), "a", false).unwrap().object;
    // Not null, which the schema of a custom resource may not allow.
    assert_eq!(emptied.get("spec"), &Value::object());
    let owners = emptied.at(&["metadata", "managedFields"]).items();
    let owners: Vec<_> = owners
        .iter()
        .map(|m| (m.str_at(&["manager"]), m.get("fieldsV1").clone()))
        .collect();
    assert_eq!(owners, [("b", json!({"f:spec": {}}))]);
}

#[test]
fn emptied_values_stay_if_owned_and_vanish_otherwise() {
    let full = json!({"spec": {"x": 1, "items": [{"name": "i", "v": 1}]}});
    let first = applied(None, full, "a", false).unwrap().object;
    let second = json!({"spec": {"items": [{"name": "i"}]}});
    let fewer = applied(Some(&first), second, "a", false).unwrap().object;
    assert_eq!(fewer.get("spec"), &json!({"items": [{"name": "i"}]}));
    // An empty keyed list has no owner, so that the struct around it has none either.
    let empty = applied(Some(&fewer), json!({"spec": {"items": []}}), "a", false).unwrap();
    assert!(empty.object.get("spec").is_null());
    let other = json!({"spec": {"x": 1, "items": []}});
    let other = applied(Some(&fewer), other, "a", false).unwrap();
    assert_eq!(other.object.get("spec"), &json!({"x": 1}));
}

#[test]
fn empty_keyed_lists_have_no_owner() {
    let object = applied(None, json!({"spec": {"x": 1, "items": []}}), "a", false)
        .unwrap()
        .object;
    let owned = object.at(&["metadata", "managedFields"]).items()[0]
        .get("fieldsV1")
        .clone();
    assert_eq!(owned, json!({"f:spec": {"f:x": {}}}));
}

#[test]
fn foreign_fields_conflict_unless_forced() {
    let a = applied(None, json!({"data": {"k": "1", "l": "1"}}), "a", false)
        .unwrap()
        .object;
    let e = applied(Some(&a), json!({"data": {"k": "2"}}), "b", false).unwrap_err();
    assert_eq!(
        (e.code, e.message.as_str()),
        (409, "Apply failed with 1 conflict: conflict with \"a\": .data.k")
    );
    assert_eq!(
        e.details.unwrap().causes[0],
        Cause {
            reason: "FieldManagerConflict".into(),
            message: "conflict with \"a\"".into(),
            field: ".data.k".into()
        }
    );
    let e = applied(Some(&a), json!({"data": {"k": "2", "l": "2"}}), "b", false).unwrap_err();
    assert_eq!(
        e.message,
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.k\n- .data.l"
    );
    let b = applied(Some(&a), json!({"data": {"k": "2"}}), "b", true)
        .unwrap()
        .object;
    assert_eq!(*b.get("data"), json!({"k": "2", "l": "1"}));
    assert!(applied(Some(&b), json!({"data": {"k": "2"}}), "c", false).is_ok());
}

#[test]
fn conflicts_are_listed_level_by_level() {
    let of = |x: &str| json!({"spec": {"items": [{"name": "i", "v": (x)}], "x": (x)}, "data": {"k": (x)}});
    let a = applied(None, of("1"), "a", false).unwrap().object;
    assert_eq!(
        applied(Some(&a), of("2"), "b", false).unwrap_err().message,
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .data.k\n- .spec.x\n- .spec.items[name=\"i\"].v"
    );
}

#[test]
fn no_op_apply_records_no_time() {
    let a = applied(None, json!({"data": {"k": "1"}}), "a", false).unwrap();
    assert!(a.changed);
    let b = applied(Some(&a.object), json!({"data": {"k": "1"}}), "b", false).unwrap();
    assert!(!b.changed);
    let times: Vec<&str> = b
        .object
        .at(&["metadata", "managedFields"])
        .items()
        .iter()
        .map(|e| e.str_at(&["time"]))
        .collect();
    assert_eq!(times, ["", "2001-01-01T00:00:00Z"]);
    assert_eq!(
        applied(Some(&b.object), json!({"data": {"k": "1"}}), "b", false)
            .unwrap()
            .object,
        b.object
    );
}

#[test]
fn merged_lists_keep_configured_order_and_live_positions() {
    let live = json!({"metadata": {"uid": "1"}, "spec": {"items": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}});
    for (config, want) in [
        (json!([{"name": "n"}]), vec!["a", "b", "c", "n"]),
        (json!([{"name": "a"}, {"name": "n"}]), vec!["a", "b", "c", "n"]),
        (json!([{"name": "n"}, {"name": "b"}]), vec!["a", "n", "b", "c"]),
        (json!([{"name": "c"}, {"name": "a"}]), vec!["b", "c", "a"]),
    ] {
        // Reordering alone would not count as a change here, so another field must differ.
        let config = json!({"spec": {"x": 1, "items": serde_json::Value::from(config)}});
        assert_eq!(
            names(&applied(Some(&live), config.clone(), "m", false).unwrap().object),
            want,
            "{config:?}"
        );
    }
}

#[test]
fn reordering_items_is_a_change() {
    let of = |names: [&str; 2]| json!({"spec": {"items": (names.map(|n| json!({"name": (n)})).to_vec())}});
    let a = applied(None, of(["x", "y"]), "a", false).unwrap().object;
    let b = applied(Some(&a), of(["y", "x"]), "b", false).unwrap();
    assert!(b.changed);
    assert_eq!(names(&b.object), ["y", "x"]);
}

#[test]
fn first_apply_records_existing_fields_as_before_first_apply() {
    let live = json!({"metadata": {"uid": "1"}, "spec": {"x": 1}});
    let e = applied(Some(&live), json!({"spec": {"x": 2}}), "m", false).unwrap_err();
    assert_eq!(
        e.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.x"
    );
    // They belong to the subresource that is applied through.
    let request = ApplyRequest {
        writer: Writer {
            manager: "m",
            subresource: "scale",
            api_version: "v1",
            now: "t",
        },
        force: false,
        reset: &FieldSet::new(),
    };
    let config = json!({"apiVersion": "v1", "kind": "T", "spec": {"x": 2}});
    let e = apply(Toy::Object, Some(&live), &config, &request).unwrap_err();
    assert!(
        e.message.contains("\"before-first-apply\" with subresource \"scale\""),
        "{}",
        e.message
    );
}

#[test]
fn nonconforming_configuration_is_a_500_without_reason() {
    let config = json!({"apiVersion": "v1", "kind": "T", "metadata": {"name": "d"}, "spec": {"items": [{"name": "a"}, {"name": "a"}, {"x": 1}], "set": [null]}});
    let e = applied(None, config, "m", false).unwrap_err();
    assert_eq!((e.code, e.reason), (500, ""));
    assert_eq!(
        e.message,
        "failed to create typed patch object (/d; /v1, Kind=T): errors:\n  .spec.items: duplicate entries for key [name=\"a\"]\n  .spec.items: element 2: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)\n  .spec.set: element 0: associative list without keys has an element that's an explicit null"
    );
    // The first item without identity ends the check of its list.
    let config = json!({"spec": {"items": [{"x": 1}, {"x": 2}, {"name": 1}]}});
    let e = applied(None, config, "m", false).unwrap_err();
    assert!(
        e.message.contains("): .spec.items: element 0: ") && !e.message.contains("element 1"),
        "{}",
        e.message
    );
    // The first undeclared member ends the check of its object.
    let config = json!({"spec": {"bogus": 1, "more": 2, "set": [null]}});
    let e = applied(None, config, "m", false).unwrap_err();
    assert!(
        e.message.ends_with("): .spec.bogus: field not declared in schema"),
        "{}",
        e.message
    );
    let e = applied(None, json!({"spec": [1]}), "m", false).unwrap_err();
    assert!(
        e.message.ends_with(": .spec: expected map, got &{[1]}"),
        "{}",
        e.message
    );
}

#[test]
fn kubectl_takes_over_fields_of_its_last_applied_annotation() {
    let last = r#"{"data":{"k":"v","l":"v"}}"#;
    let note = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = json!({"metadata": {"uid": "1", "annotations": {}}, "data": {"k": "v", "l": "changed"}});
    live.set(&["metadata", "annotations", note], last);
    let first = applied(Some(&live), json!({}), "x", false).unwrap().object;
    let e = applied(Some(&first), json!({"data": {"k": "2", "l": "2"}}), "kubectl", false).unwrap_err();
    assert_eq!(
        e.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.l"
    );
    let got = applied(Some(&first), json!({"data": {"k": "2"}}), "kubectl", false)
        .unwrap()
        .object;
    assert_eq!(*got.get("data"), json!({"k": "2", "l": "changed"}));
    assert_eq!(got.annotation(note), Some("{\"data\":{\"k\":\"2\"}}\n"));
    assert!(applied(Some(&first), json!({"data": {"k": "2"}}), "kubectl-x", false).is_err());
}

#[test]
fn body_must_match_the_endpoints_kind() {
    let read = |b: &str| decode_config(b.as_bytes(), &GroupVersionKind::new("", "v1", "T")).map_err(|e| e.message);
    assert_eq!(
        read("{kind: T, apiVersion: v1, a: yes}").unwrap().0,
        json!({"kind": "T", "apiVersion": "v1", "a": true})
    );
    for (body, want) in [
        ("", "invalid object type: /, Kind="),
        ("{kind: T}", "invalid object type: /, Kind=T"),
        ("{kind: T, apiVersion: a/b/c}", "invalid object type: /, Kind="),
        ("{kind: T, apiVersion: apps/v1}", "invalid object type: apps/v1, Kind=T"),
        (
            "[1]",
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            "{kind: T, apiVersion: v1, metadata: {managedFields: []}}",
            "metadata.managedFields must be nil",
        ),
    ] {
        assert_eq!(read(body).unwrap_err(), want, "{body}");
    }
    // Entries that cannot be read count as none.
    for unreadable in ["[{time: x}]", "[{manager: 5}]", "[5]"] {
        let body = format!("{{kind: T, apiVersion: v1, metadata: {{managedFields: {unreadable}}}}}");
        assert!(read(&body).is_ok(), "{body}");
    }
    assert!(
        read("{{{")
            .unwrap_err()
            .starts_with("error decoding YAML: error converting YAML to JSON: yaml: line 1: ")
    );
}

#[test]
fn reset_fields_still_count_as_a_change() {
    let a = applied(None, json!({"data": {"k": "1"}}), "a", false).unwrap().object;
    let b = applied(Some(&a), json!({"data": {"k": "1"}, "status": {"x": 1}}), "b", false).unwrap();
    assert!(b.changed);
    let of_b = b.object.at(&["metadata", "managedFields"]).items().to_vec();
    let of_b = of_b.iter().find(|e| e.str_at(&["manager"]) == "b").unwrap();
    assert_eq!(of_b.str_at(&["time"]), "2001-01-01T00:00:00Z");
    assert_eq!(*of_b.get("fieldsV1"), json!({"f:data": {"f:k": {}}}));
}

#[test]
fn null_over_an_empty_value_is_a_change() {
    let live = |spec: Value| json!({"apiVersion": "v1", "kind": "T", "metadata": {"uid": "1", "managedFields": [{"manager": "o", "operation": "Update", "apiVersion": "v1", "time": "t0", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]}, "data": {"k": "v"}, "spec": spec});
    let null = json!({"apiVersion": "v1", "kind": "T", "spec": null});
    let time = |spec| {
        let done = applied(Some(&live(spec)), null.clone(), "m", false).unwrap();
        let entries = done.object.at(&["metadata", "managedFields"]).items();
        let mine = entries.iter().find(|e| e.str_at(&["manager"]) == "m");
        mine.map(|e| e.str_at(&["time"]).to_owned())
    };
    assert_ne!(time(json!({})).as_deref(), Some(""));
    assert_eq!(time(json!({"x": 1})).as_deref(), Some(""));
}
