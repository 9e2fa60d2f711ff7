use super::*;
use crate::api::openapi::Dialect;
use crate::apimachinery::field::aggregate;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::json;
use crate::registry::Schema;
use crate::registry::schema::ManagerInfo;
use proptest::prelude::*;

fn spec(properties: Value) -> Value {
    let mut s = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    s.set(&["properties", "spec", "properties"], properties);
    s
}

fn schema(properties: Value) -> StructuralSchema {
    StructuralSchema::parse(&spec(properties))
        .map_err(|e| aggregate(&e))
        .unwrap()
}

fn refused(schema: Value) -> Vec<String> {
    let errors = StructuralSchema::parse(&schema).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

fn wrong(properties: Value, spec: Value) -> Vec<String> {
    let mut object = Value::object();
    object.set(&["spec"], spec);
    let errors = schema(properties).validate(&object, None);
    errors.iter().map(ToString::to_string).collect()
}

fn gadget() -> KindSchema {
    let s = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 0},
            "colour": {"type": "string", "default": "red"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                "items": {"type": "object", "required": ["k"], "properties": {
                    "k": {"type": "string"}, "p": {"type": "string", "default": "tcp"}, "v": {"type": "string"}}}}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string", "maxLength": 3}}}}});
    let gvk = GroupVersionKind::new("example.com", "v1", "Gadget");
    KindSchema::parse(gvk, &s, &FieldPath::default())
        .map_err(|e| aggregate(&e))
        .unwrap()
}

#[test]
fn unknown_fields_are_pruned_and_reported() {
    let s = schema(json!({
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "any": {"type": "object", "additionalProperties": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object"}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "text": {"type": "string"}}));
    let mut o = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "extra": 1, "spec": {
        "map": {"x": {"a": "1", "b": 2}}, "any": {"x": {"y": 1}}, "free": {"q": {"r": 1}, "known": {"z": 1}},
        "list": [{"a": "1"}, {"b": 1}], "text": {"a": 1}}});
    assert_eq!(
        s.prune(&mut o),
        [
            "extra",
            "spec.any.x.y",
            "spec.free.known.z",
            "spec.list[1].b",
            "spec.map.x.b",
            "spec.text.a"
        ]
    );
    assert_eq!(
        o,
        json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "spec": {
            "map": {"x": {"a": "1"}}, "any": {"x": {}}, "free": {"q": {"r": 1}, "known": {}},
            "list": [{"a": "1"}, {}], "text": {}}})
    );
}

#[test]
fn nulls_are_kept_pruned_or_defaulted() {
    let s = schema(json!({
        "keeps": {"type": "string", "nullable": true}, "goes": {"type": "string"},
        "filled": {"type": "string", "default": "x"}, "items": {"type": "array", "items": {"type": "string"}}}));
    let mut o = json!({"spec": {"keeps": null, "goes": null, "filled": null, "items": [null]}});
    assert!(s.prune(&mut o).is_empty());
    s.default(&mut o);
    assert_eq!(o, json!({"spec": {"keeps": null, "filled": "x", "items": [null]}}));
    let e = s.validate(&o, None);
    assert_eq!(
        e[0].to_string(),
        "spec.items[0]: Invalid value: \"null\": spec.items[0] in body must be of type string: \"null\""
    );
}

#[test]
fn nested_defaults_apply_below_defaults() {
    let s =
        schema(json!({"a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 7}}}}));
    let mut o = json!({"spec": {}});
    s.default(&mut o);
    assert_eq!(o, json!({"spec": {"a": {"b": 7}}}));
}

#[test]
fn invalid_values_give_upstreams_messages() {
    let s = json!({
        "n": {"type": "integer", "minimum": 1, "maximum": 10}, "e": {"type": "string", "enum": ["a", "b"]},
        "s": {"type": "string", "maxLength": 4, "pattern": "^[a-z]+$"}, "l": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        "ios": {"x-kubernetes-int-or-string": true}, "id": {"type": "string", "format": "uuid"},
        "i32": {"type": "integer", "format": "int32"}, "closed": {"type": "object", "additionalProperties": false}});
    for (value, expected) in [
        (
            json!({"n": 0}),
            "spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1",
        ),
        (
            json!({"n": 11}),
            "spec.n: Invalid value: 11: spec.n in body should be less than or equal to 10",
        ),
        (
            json!({"n": "x"}),
            "spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\"",
        ),
        (
            json!({"e": "c"}),
            "spec.e: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (json!({"s": "abcde"}), "spec.s: Too long: may not be more than 4 bytes"),
        (
            json!({"s": "A"}),
            "spec.s: Invalid value: \"A\": spec.s in body should match '^[a-z]+$'",
        ),
        (
            json!({"l": ["a", "b"]}),
            "spec.l: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"ios": true}),
            "spec.ios: Invalid value: \"boolean\": spec.ios in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"id": "z"}),
            "spec.id: Invalid value: \"z\": spec.id in body must be of type uuid: \"z\"",
        ),
        (
            json!({"id": 5}),
            "spec.id: Invalid value: \"int64\": spec.id in body must be of type uuid: \"int64\"",
        ),
        (
            json!({"i32": 3000000000i64}),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i32",
        ),
        (
            json!({"closed": {"k": 1}}),
            "spec.closed: Invalid value: \"k\": spec.closed.k in body is a forbidden property",
        ),
    ] {
        assert_eq!(wrong(s.clone(), value), [expected]);
    }
    assert!(wrong(s, json!({"n": 1.0, "ios": "x", "l": ["a"]})).is_empty());
}

#[test]
fn a_fraction_for_an_integer_gives_upstreams_three_errors() {
    let s = json!({"n": {"type": "integer", "minimum": 5}});
    assert_eq!(
        wrong(s, json!({"n": 2.5})),
        [
            "spec.n: Invalid value: \"number\": spec.n in body must be of type integer: \"number\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.n",
            "spec.n: Invalid value: 2.5: spec.n in body should be greater than or equal to 5",
        ]
    );
}

#[test]
fn one_of_and_not_are_evaluated() {
    let s = json!({"a": {"type": "string", "oneOf": [{"pattern": "^x"}, {"pattern": "y$"}], "not": {"enum": ["no"]}}});
    assert!(wrong(s.clone(), json!({"a": "x"})).is_empty());
    assert_eq!(
        wrong(s.clone(), json!({"a": "xy"})),
        [
            "<nil>: Invalid value: \"\": \"spec.a\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
        ]
    );
    let none = wrong(s, json!({"a": "no"}));
    assert_eq!(none.len(), 3, "{none:?}");
    assert!(none[0].ends_with("Found none valid") && none[2].ends_with("must not validate the schema (not)"));
}

#[test]
fn duplicates_in_sets_and_maps_are_reported() {
    let s = json!({"set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}});
    assert_eq!(
        wrong(s, json!({"set": ["a", "b", "a", "a"]})),
        ["spec.set[2]: Duplicate value: \"a\""]
    );
    let o = json!({"spec": {"size": 1, "parts": [{"k": "a", "p": "x"}, {"k": "a", "p": "x", "v": "1"}]}});
    let e = gadget().structural().validate(&o, None);
    assert_eq!(
        aggregate(&e),
        "spec.parts[1]: Duplicate value: {\"k\":\"a\",\"p\":\"x\"}"
    );
}

#[test]
fn unchanged_invalid_values_are_ratcheted() {
    let s = schema(json!({"n": {"type": "integer", "maximum": 3}, "m": {"type": "integer"}}));
    let old = json!({"spec": {"n": 5, "m": 1}});
    assert!(s.validate(&json!({"spec": {"n": 5, "m": 2}}), Some(&old)).is_empty());
    assert_eq!(s.validate(&json!({"spec": {"n": 6, "m": 1}}), Some(&old)).len(), 1);
}

#[test]
fn status_errors_have_full_field_paths() {
    let o = json!({"spec": {"size": 1}, "status": {"phase": 7}});
    let e = gadget().structural().validate_status(&o, None);
    assert_eq!(
        aggregate(&e),
        "status.phase: Invalid value: \"integer\": phase in body must be of type string: \"integer\""
    );
}

#[test]
fn non_structural_schemas_are_rejected() {
    assert_eq!(
        refused(json!({"type": "object", "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "text"}}})),
        [
            "properties[a].type: Required value: must not be empty for specified object fields",
            "properties[b].items: Required value: must be specified",
            "properties[c].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ]
    );
    assert_eq!(
        refused(json!({"properties": {"a": {"type": "string", "pattern": "("}}})),
        [
            "type: Required value: must not be empty at the root",
            "properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: unclosed group",
        ]
    );
    assert_eq!(
        refused(json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}})),
        ["properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\""]
    );
    assert_eq!(
        refused(
            json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}})
        ),
        [
            "properties[l].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        ]
    );
}

#[test]
fn normalize_reports_dropped_fields() {
    let mut o = json!({"metadata": {"name": "n", "nope": 1}, "spec": {"size": 1, "x": 1}});
    assert_eq!(
        gadget().normalize(&mut o).unwrap(),
        ["unknown field \"metadata.nope\"", "unknown field \"spec.x\""]
    );
    assert_eq!(o.str_at(&["metadata", "name"]), "n");
    let e = gadget()
        .normalize(&mut json!({"metadata": {"name": true}}))
        .unwrap_err();
    assert_eq!(
        e.message,
        "Gadget in version \"v1\" cannot be handled as a Gadget: json: cannot unmarshal bool into Go struct field ObjectMeta.name of type string"
    );
}

#[test]
fn apply_uses_key_defaults_and_rejects_unknown_fields() {
    let who = ManagerInfo {
        manager: "m",
        subresource: "",
        now: "2024-01-01T00:00:00Z",
        api_version: "example.com/v1",
    };
    let patch = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"parts": [{"k": "1", "v": "x"}]}});
    let o = gadget().apply(None, patch.clone(), &who, false, &[]).unwrap();
    assert_eq!(
        o.at(&["metadata", "managedFields"]).items()[0].get("fieldsV1"),
        &json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:parts": {"k:{\"k\":\"1\",\"p\":\"tcp\"}": {".": {}, "f:k": {}, "f:v": {}}}}})
    );
    let mut bad = patch;
    bad.set(&["spec", "unknown"], 1i64);
    let e = gadget().apply(None, bad, &who, false, &[]).unwrap_err();
    assert_eq!(e.code, 500);
    assert_eq!(
        e.message,
        "failed to create typed patch object (/n; example.com/v1, Kind=Gadget): .spec.unknown: field not declared in schema"
    );
}

#[test]
fn the_published_schema_includes_object_metadata() {
    let c = gadget().openapi(Dialect::V3).unwrap();
    assert_eq!(c.str_at(&["properties", "kind", "type"]), "string");
    let r = c.at(&["properties", "metadata", "allOf"]).items()[0].str_at(&["$ref"]);
    assert_eq!(
        r,
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(
        c.get("x-kubernetes-group-version-kind"),
        &json!([{"group": "example.com", "kind": "Gadget", "version": "v1"}])
    );
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof!["spec", "size", "colour", "parts", "k", "p", "status", "x"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::vec((key, inner), 0..4)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (Str::from(k), v)).collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_are_idempotent(mut v in tree()) {
        let kind = gadget();
        let s = kind.structural();
        s.prune(&mut v);
        s.default(&mut v);
        let once = v.clone();
        prop_assert!(s.prune(&mut v).is_empty());
        s.default(&mut v);
        prop_assert_eq!(&v, &once);
        // Unchanged values are never invalid.
        prop_assert!(s.validate(&v, Some(&once)).is_empty());
        s.validate(&v, None);
    }

    #[test]
    fn parsing_arbitrary_documents_does_not_panic(v in tree()) {
        let _ = StructuralSchema::parse(&v);
    }
}
