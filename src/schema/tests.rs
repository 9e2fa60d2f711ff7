use super::*;
use crate::api::openapi::Dialect;
use crate::apimachinery::field::aggregate;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::json;
use crate::registry::Schema;
use crate::registry::schema::ManagerInfo;
use crate::registry::strategy::{Change, Plain, RestStrategy};
use bytes::Bytes;
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
            "properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
            "type: Required value: must not be empty at the root",
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

fn lists(property: Value) -> Vec<String> {
    refused(json!({"type": "object", "properties": {"l": property}}))
        .into_iter()
        .map(|e| e.replace("properties[l].", ""))
        .collect()
}

#[test]
fn keywords_are_refused_with_upstreams_messages() {
    for (schema, expected) in [
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "odd"}),
            "x-kubernetes-list-type: Unsupported value: \"odd\": supported values: \"atomic\", \"set\", \"map\"",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["z"]}),
            "x-kubernetes-list-map-keys: Invalid value: [\"z\"]: entries must all be names of item properties",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}},
                "x-kubernetes-list-type": "set"}),
            "items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            "x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            "anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "properties": {"y": {"type": "integer"}}, "default": {"x": 1}}),
            "default: Invalid value: {\"x\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}]}),
            "x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "a\nb"}]}),
            "x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".x"}]}),
            "x-kubernetes-validations[0].fieldPath: Invalid value: \".x\": must be a valid path",
        ),
        (json!({"type": "string", "$schema": "x"}), ""),
    ] {
        let errors = lists(schema);
        match expected {
            "" => assert_eq!(
                errors,
                ["<nil>: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]
            ),
            expected => assert_eq!(errors, [expected]),
        }
    }
}

#[test]
fn fields_in_any_of_must_be_declared_outside_of_it() {
    let outer = json!({"type": "object", "anyOf": [{"properties": {"z": {"minLength": 1}}}], "properties": {
        "y": {"type": "object", "oneOf": [{"properties": {"z": {"minLength": 1}}}]}}});
    assert_eq!(
        refused(outer),
        ["properties[z]: Required value: because it is defined in anyOf[0].properties[z]"]
    );
}

#[test]
fn metadata_may_only_restrict_names() {
    let with = |metadata: Value| json!({"type": "object", "properties": {"metadata": metadata}});
    let named = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}});
    assert!(StructuralSchema::parse(&with(named)).is_ok());
    for metadata in [
        json!({"type": "object", "properties": {"labels": {"type": "object"}}}),
        json!({"type": "object", "description": "x"}),
        json!({"type": "object", "required": ["name"]}),
    ] {
        assert_eq!(
            refused(with(metadata)),
            [
                "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
            ]
        );
    }
    let default = json!({"type": "object", "properties": {"name": {"type": "string", "default": "x"}}});
    assert_eq!(
        refused(with(default)),
        ["properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"]
    );
}

#[test]
fn embedded_objects_are_checked() {
    let s = json!({"e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}});
    assert_eq!(
        wrong(
            s.clone(),
            json!({"e": {"kind": "a b", "apiVersion": "a/b/c", "metadata": {"name": "../"}}})
        ),
        [
            "spec.e.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "spec.e.kind: Invalid value: \"a b\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "spec.e.metadata.name: Invalid value: \"../\": may not contain '/'",
        ]
    );
    assert_eq!(
        wrong(s, json!({"e": {}})),
        ["spec.e.apiVersion: Required value", "spec.e.kind: Required value"]
    );
    let default = json!({"type": "object", "properties": {"e": {"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"spec": {"type": "string"}}, "default": {"apiVersion": "v1"}}}});
    assert_eq!(refused(default), ["properties[e].default.kind: Required value"]);
}

#[test]
fn a_format_changes_the_type_check() {
    let s = json!({"d": {"type": "string", "format": "date-time"}, "ip": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
        "odd": {"type": "string", "format": "odd"}});
    assert_eq!(
        wrong(s.clone(), json!({"d": true, "odd": 5})),
        [
            "spec.d: Invalid value: \"\": spec.d in body must be of type date-time: \"\"",
            "spec.odd: Invalid value: \"integer\": spec.odd in body must be of type string: \"integer\"",
        ]
    );
    assert!(wrong(s.clone(), json!({"d": ["x"], "ip": "::1", "odd": "x"})).is_empty());
    assert_eq!(
        wrong(s, json!({"ip": "x"})),
        [
            "<nil>: Invalid value: \"\": \"spec.ip\" must validate at least one schema (anyOf)",
            "spec.ip: Invalid value: \"x\": spec.ip in body must be of type ipv4: \"x\"",
        ]
    );
}

#[test]
fn numbers_are_compared_as_upstream_compares_them() {
    let s = json!({"half": {"type": "number", "maximum": 2.5}, "odd": {"type": "integer", "minimum": 0.5},
        "big": {"type": "number", "maximum": 1000000}, "m": {"type": "number", "multipleOf": 0.1}, "zero": {"type": "integer", "multipleOf": 0}});
    for (value, expected) in [
        (
            json!({"half": 3}),
            vec!["spec.half: Invalid value: 3: spec.half in body should be less than or equal to 2"],
        ),
        (json!({"half": 2.5, "m": 0.3}), vec![]),
        (
            json!({"odd": 3}),
            vec![
                "<nil>: Invalid value: \"\": Minimum boundary value must be of type integer (default format) in spec.odd",
            ],
        ),
        (
            json!({"big": 2500000.5}),
            vec!["spec.big: Invalid value: 2.5000005e+06: spec.big in body should be less than or equal to 1e+06"],
        ),
        (
            json!({"m": 0.25}),
            vec!["spec.m: Invalid value: 0.25: spec.m in body should be a multiple of 0.1"],
        ),
        (
            json!({"zero": 3}),
            vec!["spec.zero: Invalid value: 0: factor MultipleOf declared for spec.zero must be positive: 0"],
        ),
    ] {
        assert_eq!(wrong(s.clone(), value), expected);
    }
}

#[test]
fn the_branch_with_the_most_matches_is_reported() {
    let s = json!({"o": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["c"]}, {"properties": {"a": {"minLength": 1}, "b": {"maxLength": 1}}}]}});
    assert_eq!(
        wrong(s, json!({"o": {"a": "x", "b": "xx"}})),
        [
            "<nil>: Invalid value: \"\": \"spec.o\" must validate at least one schema (anyOf)",
            "spec.o.b: Too long: may not be more than 1 byte",
        ]
    );
    let twice = json!({"a": {"type": "string", "minLength": 2, "allOf": [{"minLength": 2}, {"maxLength": 3}]}});
    assert_eq!(
        wrong(twice, json!({"a": "x"})),
        [
            "spec.a: Invalid value: \"x\": spec.a in body should be at least 2 chars long",
            "<nil>: Invalid value: \"\": \"spec.a\" must validate all the schemas (allOf)",
        ]
    );
}

#[test]
fn items_of_a_preserving_list_keep_unknown_fields() {
    let s = schema(
        json!({"l": {"type": "array", "x-kubernetes-preserve-unknown-fields": true,
        "items": {"type": "object", "properties": {"a": {"type": "object"}}}}}),
    );
    let mut o = json!({"spec": {"l": [{"x": {"y": 1}, "a": {"b": 1}}]}});
    assert_eq!(s.prune(&mut o), ["spec.l[0].a.b"]);
    assert_eq!(o, json!({"spec": {"l": [{"x": {"y": 1}, "a": {}}]}}));
}

#[test]
fn ratcheting_follows_upstreams_correlation() {
    let s = schema(json!({
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "n": {"type": "integer", "maximum": 3}}}},
        "plain": {"type": "array", "items": {"type": "integer", "maximum": 3}},
        "one": {"type": "integer", "anyOf": [{"maximum": 3}]},
        "free": {"type": "object", "maxProperties": 1, "x-kubernetes-preserve-unknown-fields": true}}));
    let errors = |old: Value, new: Value| {
        let (mut o, mut n) = (Value::object(), Value::object());
        o.set(&["spec"], old);
        n.set(&["spec"], new);
        s.validate(&n, Some(&o))
            .iter()
            .map(|e| e.field.clone())
            .collect::<Vec<_>>()
    };
    let parts = json!({"parts": [{"k": "a", "n": 9}, {"k": "b", "n": 1}]});
    assert!(
        errors(
            parts.clone(),
            json!({"parts": [{"k": "b", "n": 2}, {"k": "a", "n": 9}]})
        )
        .is_empty()
    );
    assert_eq!(
        errors(parts, json!({"parts": [{"k": "a", "n": 8}]})),
        ["spec.parts[0].n"]
    );
    assert_eq!(
        errors(json!({"plain": [9]}), json!({"plain": [9, 1]})),
        ["spec.plain[0]"]
    );
    assert!(errors(json!({"plain": [9], "one": 1}), json!({"plain": [9]})).is_empty());
    assert!(errors(json!({"one": 9, "plain": []}), json!({"one": 9})).is_empty());
    // Members that the schema does not declare cannot be compared.
    let free = json!({"free": {"a": 1, "b": 2}});
    assert_eq!(errors(free.clone(), free), ["spec.free"]);
}

#[test]
fn defaults_stop_at_their_limit_and_the_object_is_invalid() {
    let s = schema(
        json!({"l": {"type": "array", "items": {"type": "object", "properties": {
        "a": {"type": "string", "default": "x".repeat(10_000)}}}}}),
    );
    let mut o = Value::object();
    o.set(&["spec", "l"], vec![Value::object(); 10_000]);
    s.default(&mut o);
    let filled = o
        .at(&["spec", "l"])
        .items()
        .iter()
        .filter(|i| !i.get("a").is_null())
        .count();
    assert_eq!(filled, limits::MAX_DEFAULTS / 10_064);
    assert!(!s.is_defaulted(&o));
    let strategy = SchemaStrategy::new(Arc::new(s), false, Arc::new(Plain));
    let errors = strategy.validate(&o, Change::Create);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].detail.contains("defaults of its schema"), "{:?}", errors[0]);
}

#[test]
fn an_expensive_validation_is_given_up() {
    let pattern = json!({"t": {"type": "string", "pattern": r"\pL{400}"}});
    let mut spec = Value::object();
    spec.set(&["t"], "x".repeat(100_000));
    let errors = wrong(pattern, spec);
    assert!(errors[0].contains("takes too many steps to validate"), "{errors:?}");
}

#[test]
fn schemas_compile_from_json_and_are_shared() {
    let source = Bytes::from_static(br#"{"type":"object","properties":{"a":{"type":"integer","default":3}}}"#);
    let gvk = GroupVersionKind::new("example.com", "v1", "Gadget");
    let kind = KindSchema::compile(gvk.clone(), source.clone()).unwrap();
    let other = KindSchema::shared(gvk, kind.structural().clone(), source);
    assert!(Arc::ptr_eq(kind.structural(), other.structural()));
    let mut o = Value::object();
    other.structural().default(&mut o);
    assert_eq!(o, json!({"a": 3}));
    assert_eq!(StructuralSchema::compile_json(b"{").unwrap_err(), CompileError::NotJson);
}

fn numbers() -> impl Strategy<Value = Value> {
    let leaf = || proptest::option::of(0i64..3);
    let inner = || {
        let of = |(a, b): (Option<i64>, Option<i64>)| {
            let pairs = [("a", a), ("b", b)].into_iter().filter_map(|(k, v)| Some((k, v?)));
            Value::Object(pairs.collect())
        };
        proptest::option::of((leaf(), leaf()).prop_map(of))
    };
    (inner(), inner(), leaf()).prop_map(|(a, b, n)| {
        let mut v = json!({"spec": {}});
        let members = [("a", a), ("b", b), ("n", n.map(Value::Int))];
        members
            .into_iter()
            .filter_map(|(k, v)| Some((k, v?)))
            .for_each(|(k, member)| v.set(&["spec", k], member));
        v
    })
}

/// A configuration of a gadget: what it declares, and nothing that is empty.
fn configuration() -> impl Strategy<Value = Value> {
    let colour = proptest::option::of("[a-c]");
    let parts = proptest::collection::btree_map("[a-d]", proptest::option::of("[x-z]"), 0..4);
    (0i64..3, colour, parts).prop_map(|(size, colour, parts)| {
        let mut o = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n"}, "spec": {"size": (size)}});
        colour.into_iter().for_each(|c| o.set(&["spec", "colour"], c));
        let part = |(k, v): (String, Option<String>)| {
            let mut part = json!({"k": (k), "p": "udp"});
            v.into_iter().for_each(|v| part.set(&["v"], v));
            part
        };
        let parts: Vec<Value> = parts.into_iter().map(part).collect();
        if !parts.is_empty() {
            o.set(&["spec", "parts"], parts);
        }
        o
    })
}

/// An object without its managed fields.
fn unmanaged(object: &Value) -> Value {
    let mut o = object.clone();
    o.unset(&["metadata", "managedFields"]);
    o
}

proptest! {
    /// What a manager applies is what the object becomes, whatever it applied before; what others applied
    /// stays.
    #[test]
    fn applied_configurations_make_the_round_trip(first in configuration(), second in configuration()) {
        let kind = gadget();
        let apply = |live: Option<&Value>, patch: &Value, manager: &str| {
            let who = ManagerInfo {manager, subresource: "", now: "2024-01-01T00:00:00Z", api_version: "example.com/v1"};
            kind.apply(live, patch.clone(), &who, true, &[]).unwrap()
        };
        let once = apply(None, &first, "a");
        prop_assert_eq!(unmanaged(&once), first.clone());
        prop_assert_eq!(apply(Some(&once), &first, "a"), once.clone(), "the same again changes nothing");
        let twice = apply(Some(&once), &second, "a");
        prop_assert_eq!(unmanaged(&twice), second.clone());
        prop_assert_eq!(apply(Some(&twice), &first, "a"), once.clone(), "and back");
        // Another manager takes everything that differs; when the first gives up all, its own fields are
        // left.
        let both = apply(Some(&once), &second, "b");
        let nothing = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "n"}});
        prop_assert_eq!(unmanaged(&apply(Some(&both), &nothing, "a")), second);
    }

    #[test]
    fn pruning_and_defaulting_are_idempotent(mut v in tree()) {
        let kind = gadget();
        let s = kind.structural();
        s.prune(&mut v);
        s.default(&mut v);
        let once = v.clone();
        prop_assert!(s.is_defaulted(&v));
        prop_assert!(s.prune(&mut v).is_empty());
        s.default(&mut v);
        prop_assert_eq!(&v, &once);
        // Unchanged values are never invalid, except for items of a list of type map that cannot be told
        // apart.
        let listed = once.at(&["spec", "parts"]).as_array().is_some();
        prop_assert!(listed || s.validate(&v, Some(&once)).is_empty());
        s.validate(&v, None);
    }

    /// An error is reported if neither its value nor one around it is unchanged.
    #[test]
    fn ratcheting_equals_its_restatement(old in numbers(), new in numbers()) {
        let number = json!({"type": "integer", "maximum": 1});
        let inner = json!({"type": "object", "minProperties": 1, "properties": {"a": number, "b": number}});
        let s = schema(json!({"a": inner, "b": inner, "n": number}));
        let at = |v: &Value, path: &str| path.split('.').try_fold(v, |v, k| v.as_object()?.get(k)).cloned();
        let survives = |path: &str| {
            let ends = path.match_indices('.').map(|(i, _)| i).chain([path.len()]);
            ends.map(|end| &path[..end]).all(|p| at(&old, p).is_none() || at(&old, p) != at(&new, p))
        };
        let all = s.validate(&new, None);
        let expected: Vec<&String> = all.iter().map(|e| &e.field).filter(|f| survives(f)).collect();
        let actual = s.validate(&new, Some(&old));
        prop_assert_eq!(actual.iter().map(|e| &e.field).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn parsing_arbitrary_documents_does_not_panic(v in tree()) {
        let _ = StructuralSchema::parse(&v);
    }
}
