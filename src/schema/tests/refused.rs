//! Schemas that are refused, with upstream's messages.

use super::*;

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
            json!({"type": "object", "properties": {"y": {"type": "integer"}}, "default": {"kind": "x"}}),
            "default: Invalid value: {\"kind\":\"x\"}: must not have unknown fields",
        ),
        (
            json!({"type": "array", "items": []}),
            "items: Required value: must be specified",
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
        // Nothing is known about the fields of a schema that has no structural form.
        (
            json!({"type": "object", "$ref": "#/x", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".x"}]}),
            "$ref: Forbidden: $ref is not supported",
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
        json!({"type": "object", "not": {}}),
        json!({"type": "object", "externalDocs": {}}),
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
fn non_structural_schemas_are_rejected() {
    assert_eq!(
        refused(json!({"type": "object", "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "text"}}})),
        [
            "properties[a].type: Required value: must not be empty for specified object fields",
            "properties[b].items: Required value: must be specified",
            "properties[c].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ]
    );
    // No default is of a type that does not exist.
    assert_eq!(
        refused(json!({"type": "object", "properties": {"a": {"type": "text", "default": "x"}}})),
        [
            "properties[a].default: Invalid value: \"string\":  in body must be of type text: \"string\"",
            "properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ]
    );
    // Nor do expressions know such a type.
    assert_eq!(
        refused(
            json!({"type": "object", "properties": {"a": {"type": "text", "format": "password", "default": "x",
            "x-kubernetes-validations": [{"rule": "true"}]}}})
        ),
        [
            "properties[a].default: Invalid value: \"text\": rule compiler initialization error: failed to convert to declType for CEL validation rules",
            "properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
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
