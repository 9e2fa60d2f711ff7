mod apply;
mod bounds;
mod properties;
mod refused;

use super::*;
use crate::api::openapi::Dialect;
use crate::apimachinery::field::aggregate;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::json;
use crate::registry::Schema;
use crate::registry::strategy::{Change, Plain, RestStrategy};
use bytes::Bytes;

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
    assert_eq!(
        wrong(json!({"a": {"type": "string", "not": {}}}), json!({"a": "x"})),
        ["<nil>: Invalid value: \"\": \"spec.a\" must not validate the schema (not)"]
    );
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
fn normalize_reports_dropped_fields() {
    let mut o = json!({"metadata": {"name": "n", "nope": 1}, "spec": {"size": 1, "x": 1}});
    assert_eq!(
        gadget().normalize(&mut o).unwrap(),
        ["unknown field \"metadata.nope\"", "unknown field \"spec.x\""]
    );
    assert_eq!(o.str_at(&["metadata", "name"]), "n");
    let mut other = json!({"kind": "Widget", "metadata": {"nope": 1}, "spec": {"x": 1}});
    assert_eq!(
        gadget().normalize(&mut other).unwrap(),
        ["unknown field \"metadata.nope\""]
    );
    assert_eq!(other.at(&["spec", "x"]).as_i64(), Some(1));
    let e = gadget()
        .normalize(&mut json!({"metadata": {"name": true}}))
        .unwrap_err();
    assert_eq!(
        e.message,
        "Gadget in version \"v1\" cannot be handled as a Gadget: json: cannot unmarshal bool into Go struct field ObjectMeta.name of type string"
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
fn metadata_of_an_embedded_object_may_be_null() {
    let s = json!({"e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}});
    let s = schema(s);
    let mut object = json!({"spec": {"e": {"apiVersion": "v1", "kind": "Pod", "metadata": null}}});
    embedded::coerce(&s.root, &mut object, &FieldPath::default(), false).unwrap();
    assert_eq!(object.at(&["spec", "e", "metadata"]), &Value::object());
}

#[test]
fn a_format_that_is_not_known_changes_the_type_check_of_defaults() {
    for (schema, shown, expected) in [
        (
            json!({"type": "string", "format": "quantity", "default": 1}),
            "\"int64\"",
            "quantity: \"int64\"",
        ),
        (
            json!({"type": "boolean", "format": "odd", "default": {}}),
            "\"\"",
            "odd: \"\"",
        ),
    ] {
        assert_eq!(
            refused(json!({"type": "object", "properties": {"d": schema}})),
            [format!(
                "properties[d].default: Invalid value: {shown}:  in body must be of type {expected}"
            )]
        );
    }
    // Text has every format.
    let text = json!({"type": "boolean", "format": "odd", "default": "x"});
    assert!(StructuralSchema::parse(&json!({"type": "object", "properties": {"d": text}})).is_ok());
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
