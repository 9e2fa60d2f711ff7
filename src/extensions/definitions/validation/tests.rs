use super::*;
use crate::apimachinery::field::aggregate;
use crate::extensions::definitions::printed;
use crate::json;

fn crd() -> Value {
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "conversion": {"strategy": "None"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        "status": {"storedVersions": ["v1"]}})
}

fn with(path: &[&str], value: Value) -> Value {
    let mut v = crd();
    v.set(path, value);
    v
}

/// A definition whose only version has these members.
fn version(members: Value) -> Value {
    let mut version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    for (key, value) in members.as_object().into_iter().flat_map(|m| m.iter()) {
        version.set(&[key], value.clone());
    }
    with(&["spec", "versions"], vec![version].into())
}

fn errors(v: &Value) -> Vec<String> {
    create(v).iter().map(ToString::to_string).collect()
}

#[test]
fn minimal_definition_is_valid() {
    assert!(errors(&crd()).is_empty());
    assert_eq!(aggregate(&update(&crd(), &crd())), "[]");
}

#[test]
fn exactly_one_version_is_stored() {
    let mut v = crd();
    for (sent, shown) in [(Value::Null, "null"), (json!([]), "[]")] {
        let mut none = crd();
        none.set(&["spec", "versions"], sent);
        let wanted =
            format!("spec.versions: Invalid value: {shown}: must have exactly one version marked as storage version");
        assert!(aggregate(&create(&none)).contains(&wanted), "{shown}");
    }
    v.set(
        &["spec", "versions"],
        json!([{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]),
    );
    v.set(&["status", "storedVersions"], Value::Null);
    assert_eq!(
        errors(&v),
        [
            "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ]
    );
    let stored = with(&["status", "storedVersions"], json!(["v0", "v1"]));
    assert!(
        errors(&stored)[0]
            .starts_with("status.storedVersions[0]: Invalid value: \"v0\": missing from spec.versions; v0")
    );
    let stored = with(&["status", "storedVersions"], json!(["v0"]));
    assert_eq!(
        errors(&stored)[0],
        "status.storedVersions: Invalid value: [\"v0\"]: must have the storage version v1"
    );
}

#[test]
fn errors_in_shared_fields_are_reported_at_the_top() {
    let bad = json!({"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}});
    let shared = errors(&version(json!({"schema": bad})));
    let why = "type: Required value: must not be empty for specified object fields";
    assert_eq!(shared, [format!("spec.validation.openAPIV3Schema.properties[a].{why}")]);
    let mut two = crd();
    two.set(
        &["spec", "versions"],
        json!([{"name": "v1", "served": true, "storage": true, "schema": bad},
            {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]),
    );
    assert_eq!(
        errors(&two),
        [format!("spec.versions[0].schema.openAPIV3Schema.properties[a].{why}")]
    );
}

#[test]
fn schemas_that_differ_in_empty_lists_are_shared() {
    let places = |extra: Value| {
        let schema = |extra: &Value| {
            let mut schema = json!({"type": "object", "properties": {"a": {}}});
            for (key, value) in extra.as_object().into_iter().flat_map(|m| m.iter()) {
                schema.set(&[key], value.clone());
            }
            schema
        };
        let versions = json!([
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": (schema(&json!({})))}},
            {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": (schema(&extra))}}]);
        let v = with(&["spec", "versions"], versions);
        errors(&v)[0].split('.').nth(1).map(str::to_owned)
    };
    for empty in [
        json!({"required": []}),
        json!({"definitions": {}}),
        json!({"properties": {"a": {"allOf": []}}}),
    ] {
        assert_eq!(places(empty.clone()).as_deref(), Some("validation"), "{empty:?}");
    }
    // A property is there even if its schema is empty, as a schema to which there is a pointer.
    for other in [
        json!({"properties": {"a": {}, "properties": {}}}),
        json!({"properties": {"a": {"not": {}}}}),
    ] {
        assert_eq!(places(other.clone()).as_deref(), Some("versions[0]"), "{other:?}");
    }
}

#[test]
fn parts_of_versions_are_validated() {
    for (members, expected) in [
        (
            json!({"schema": null}),
            vec!["spec.versions[0].schema.openAPIV3Schema: Required value"],
        ),
        (
            json!({"deprecationWarning": "x"}),
            vec!["spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions"],
        ),
        (
            json!({"deprecated": true, "deprecationWarning": "a\u{7}"}),
            vec![
                "spec.versions[0].deprecationWarning: Invalid value: \"a\\u0007\": must only contain printable UTF-8 characters; non-printable character found at index 1",
            ],
        ),
        (
            json!({"subresources": {"scale": {"specReplicasPath": "spec.replicas", "statusReplicasPath": ".spec.x", "labelSelectorPath": ".x"}}}),
            vec![
                "spec.subresources.scale.specReplicasPath: Invalid value: \"spec.replicas\": must be a simple json path starting with .",
                "spec.subresources.scale.statusReplicasPath: Invalid value: \".spec.x\": should be a json path under .status",
                "spec.subresources.scale.labelSelectorPath: Invalid value: \".x\": should be a json path under either .spec or .status",
            ],
        ),
        (
            json!({"additionalPrinterColumns": [{"name": "", "type": "blob", "format": "odd", "jsonPath": "x"}]}),
            vec![
                "spec.additionalPrinterColumns[0].name: Required value",
                "spec.additionalPrinterColumns[0].type: Invalid value: \"blob\": must be one of boolean,date,integer,number,string",
                "spec.additionalPrinterColumns[0].format: Invalid value: \"odd\": must be one of byte,date,date-time,double,float,int32,int64,password",
                "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"x\": must be a simple json path starting with .",
            ],
        ),
        (
            json!({"selectableFields": [{"jsonPath": ".spec.nope"}, {"jsonPath": ""}]}),
            vec![
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.nope\": is an invalid path: does not refer to a valid field",
                "spec.selectableFields[1].jsonPath: Required value",
            ],
        ),
        (
            json!({"schema": {"openAPIV3Schema": {"type": "object", "nullable": true}}}),
            vec!["spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"],
        ),
    ] {
        assert_eq!(errors(&version(members)), expected);
    }
}

#[test]
fn selectable_fields_are_scalar_and_unique() {
    let properties = json!({"a": {"type": "string"}, "o": {"type": "object"}});
    let mut members = json!({"selectableFields": [{"jsonPath": ".a"}, {"jsonPath": ".a"}, {"jsonPath": ".o"}]});
    members.set(
        &["schema", "openAPIV3Schema"],
        json!({"type": "object", "properties": properties}),
    );
    assert_eq!(
        errors(&version(members)),
        [
            "spec.selectableFields[1].jsonPath: Duplicate value: \".a\"",
            "spec.selectableFields[2].jsonPath: Invalid value: \".o\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
        ]
    );
    let many: Vec<Value> = (0..9).map(|i| json!({"jsonPath": format!(".p{i}")})).collect();
    let properties: crate::apimachinery::Map = (0..9).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
    let mut schema = json!({"type": "object"});
    schema.set(&["properties"], properties);
    let mut members = Value::object();
    members.set(&["schema", "openAPIV3Schema"], schema);
    members.set(&["selectableFields"], many);
    let v = version(members);
    assert_eq!(
        errors(&v),
        ["spec.selectableFields: Too many: 9: must have at most 8 items"]
    );
    assert!(update(&v, &v).is_empty());
}

#[test]
fn conversion_is_validated() {
    let conversion = |v: Value| errors(&with(&["spec", "conversion"], v));
    assert_eq!(
        conversion(json!({"strategy": "Odd"})),
        ["spec.conversion.strategy: Unsupported value: \"Odd\": supported values: \"None\", \"Webhook\""]
    );
    assert_eq!(
        conversion(json!({"strategy": "Webhook"})),
        [
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ]
    );
    assert_eq!(
        conversion(
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://x/y"}, "conversionReviewVersions": ["v9", "v9"]}})
        ),
        [
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            "spec.conversion.conversionReviewVersions[1]: Invalid value: \"v9\": duplicate version",
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v9\",\"v9\"]: must include at least one of v1, v1beta1",
        ]
    );
    assert_eq!(
        conversion(json!({"strategy": "None", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}})),
        [
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ]
    );
}

#[test]
fn a_ca_bundle_is_checked_once_the_definition_is_established() {
    let mut old = crd();
    old.set(
        &["status", "conditions"],
        json!([{"type": "Established", "status": "True"}]),
    );
    let mut new = old.clone();
    new.set(
        &["spec", "conversion"],
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x", "caBundle": "YWJj"}, "conversionReviewVersions": ["v1"]}}),
    );
    assert_eq!(
        aggregate(&update(&new, &old)),
        "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"YWJj\": unable to load root certificates: unable to parse bytes as PEM block"
    );
    assert!(update(&new, &new).is_empty() && create(&new).is_empty());
}

#[test]
fn names_and_group_are_immutable() {
    assert!(update(&with(&["spec", "scope"], json!("Cluster")), &crd()).is_empty());
    let mut old = crd();
    old.set(
        &["status", "conditions"],
        json!([{"type": "Established", "status": "True"}]),
    );
    let changed = |path: &[&str], value: &str| {
        let mut new = old.clone();
        new.set(path, value);
        aggregate(&update(&new, &old))
    };
    assert_eq!(
        changed(&["spec", "scope"], "Cluster"),
        "spec.scope: Invalid value: \"Cluster\": field is immutable"
    );
    assert_eq!(
        changed(&["spec", "names", "kind"], "X"),
        "spec.names.kind: Invalid value: \"X\": field is immutable"
    );
    assert_eq!(
        changed(&["spec", "group"], "other.com"),
        "spec.group: Invalid value: \"other.com\": field is immutable"
    );
    assert_eq!(changed(&["spec", "names", "singular"], "x"), "[]");
}

#[test]
fn an_update_does_not_enforce_rules_that_the_stored_definition_violates() {
    let old = version(
        json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"l": {"type": "array",
        "x-kubernetes-list-type": "set", "items": {"type": "object", "nullable": true}}}}}}),
    );
    assert_eq!(errors(&old).len(), 2);
    assert!(update(&old, &old).is_empty());
    // The structural rules are always enforced where unknown fields are pruned.
    let loose = version(json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}}));
    assert_eq!(update(&loose, &loose).len(), 1);
    let mut preserving = loose;
    preserving.set(&["spec", "preserveUnknownFields"], true);
    assert!(update(&preserving, &preserving).is_empty());
    assert_eq!(errors(&preserving).len(), 2);
}

#[test]
fn groups_of_the_community_need_an_approval() {
    let mut v = with(&["spec", "group"], json!("apps.k8s.io"));
    v.set(&["metadata", "name"], "widgets.apps.k8s.io");
    let field = "metadata.annotations[api-approved.kubernetes.io]";
    assert!(errors(&v)[0].starts_with(&format!("{field}: Required value: protected groups")));
    assert!(update(&v, &v).is_empty());
    let mut odd = v.clone();
    odd.set(&["metadata", "annotations", "api-approved.kubernetes.io"], "yes");
    assert!(errors(&odd)[0].starts_with(&format!("{field}: Invalid value: \"yes\": protected groups")));
    assert_eq!(update(&odd, &v).len(), 1);
    odd.set(
        &["metadata", "annotations", "api-approved.kubernetes.io"],
        "https://x/1",
    );
    assert!(errors(&odd).is_empty());
}

#[test]
fn accepted_names_of_a_status_are_validated() {
    let mut v = crd();
    v.set(
        &["status", "acceptedNames"],
        json!({"plural": "A", "kind": "", "shortNames": ["x y"]}),
    );
    let found: Vec<String> = status(&v).iter().map(|e| e.field.clone()).collect();
    assert_eq!(
        found,
        ["status.acceptedNames.plural", "status.acceptedNames.shortNames[0]"]
    );
}

#[test]
fn unrecognized_formats_cause_one_warning_for_each_node() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "string", "format": "odd"}},
        "b": {"type": "string", "format": "date-time", "anyOf": [{"format": "odd"}, {"format": "strange"}]},
        "c": {"type": "object", "format": "uri"}}});
    let mut members = Value::object();
    members.set(&["schema", "openAPIV3Schema"], schema);
    let v = version(members);
    assert_eq!(unrecognized_formats(&v), ["odd", "odd", "strange", "uri"]);
    assert_eq!(format_warnings(&v, Some(&v)), Vec::<String>::new());
    assert_eq!(format_warnings(&v, None)[2], "unrecognized format \"strange\"");
}

#[test]
fn costly_schemas_are_refused() {
    let mut schema = json!({"type": "object"});
    schema.set(&["anyOf"], vec![json!({"minProperties": 1}); 6_000]);
    let mut members = Value::object();
    members.set(&["schema", "openAPIV3Schema"], schema);
    assert_eq!(
        errors(&version(members)),
        ["spec.validation.openAPIV3Schema: Forbidden: must not have as many schemas in allOf, anyOf, oneOf and not"]
    );
}

#[test]
fn keywords_at_the_root_are_limited_if_there_is_a_status() {
    for extra in [json!({"maxProperties": 3}), json!({"not": {}})] {
        let mut schema = json!({"type": "object"});
        for (key, value) in extra.as_object().into_iter().flat_map(|m| m.iter()) {
            schema.set(&[key], value.clone());
        }
        let shown = printed::schema(&schema);
        assert_eq!(
            errors(&version(
                json!({"subresources": {"status": {}}, "schema": {"openAPIV3Schema": (schema)}})
            )),
            [format!(
                "spec.validation.openAPIV3Schema: Invalid value: {shown}: only [Description Type Format Title Maximum \
                 ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems \
                 MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields \
                 are allowed at the root of the schema if the status subresource is enabled"
            )]
        );
    }
}

#[test]
fn the_first_keyword_of_a_root_schema_with_another_type_is_reported() {
    let first = |schema: Value| {
        let members = json!({"subresources": {"status": {}}, "schema": {"openAPIV3Schema": (schema)}});
        let why = errors(&version(members)).into_iter().next().unwrap_or_default();
        why.contains("only \"object\" is allowed as the type")
    };
    assert!(first(json!({"type": "string", "maxProperties": 3})));
    assert!(!first(json!({"type": "string", "$ref": "#/x"})));
}

#[test]
fn selectable_fields_of_a_schema_that_cannot_be_converted_report_it() {
    let members = json!({"schema": {"openAPIV3Schema": {"type": "object", "additionalItems": true}},
        "selectableFields": [{"jsonPath": "x"}]});
    let all = errors(&version(members));
    let wanted = "spec.schema.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'additionalItems' is not supported";
    let at = all.iter().position(|e| e == wanted);
    assert!(
        at.is_some_and(
            |at| all[at + 1].starts_with("spec.selectableFields[0].jsonPath: Invalid value: \"x\": is an invalid path")
        ),
        "{all:?}"
    );
}

#[test]
fn values_of_enumerations_are_printed_as_in_go() {
    // The scope is compared as a string, and refused as one.
    let scope = errors(&with(&["spec", "scope"], "a&b".into()));
    assert_eq!(
        scope,
        ["spec.scope: Unsupported value: \"a&b\": supported values: \"Cluster\", \"Namespaced\""]
    );
    let mut old = crd();
    old.set(
        &["status", "conditions"],
        json!([{"type": "Established", "status": "True"}]),
    );
    let mut new = old.clone();
    new.set(&["spec", "scope"], "a&b");
    let all = aggregate(&update(&new, &old));
    assert!(
        all.contains("spec.scope: Invalid value: \"a\\u0026b\": field is immutable"),
        "{all}"
    );
}

#[test]
fn names_consist_of_plural_and_group() {
    assert_eq!(name(&crd(), "widgets.example.com"), [""; 0]);
    assert_eq!(name(&crd(), "widgets."), ["must be spec.names.plural+\".\"+spec.group"]);
}

#[test]
fn the_first_version_of_a_name_decides_about_the_status_of_all() {
    let of = |name: &str, members: Value| {
        let mut version = json!({"name": (name), "served": true, "storage": false,
            "schema": {"openAPIV3Schema": {"type": "object", "maxProperties": 3}}});
        for (key, value) in members.as_object().into_iter().flat_map(|m| m.iter()) {
            version.set(&[key], value.clone());
        }
        version
    };
    let status = json!({"subresources": {"status": {}}});
    let other = json!({"schema": {"openAPIV3Schema": {"type": "object"}}});
    let v = with(
        &["spec", "versions"],
        vec![
            of("v1", status.clone()),
            of("v1", json!({})),
            of("v2", json!({})),
            of("v2", status),
            of("v3", other),
        ]
        .into(),
    );
    let all = errors(&v);
    let limited: Vec<bool> = (0..5)
        .map(|i| {
            all.iter()
                .any(|e| e.starts_with(&format!("spec.versions[{i}].schema.openAPIV3Schema: Invalid")))
        })
        .collect();
    assert_eq!(limited, [true, true, false, false, false], "{all:?}");
}
