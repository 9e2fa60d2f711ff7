use super::*;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::extensions::conversion::shape::SchemaShape;
use crate::json;
use crate::registry::converting::Shape as _;
use crate::schema::KindSchema;
use proptest::prelude::*;

/// Every kind of rule.
const RULES: &str = "
- from: v1beta1
  to: v1
  rules:
  - move: {from: .spec.colour, to: .spec.color}
  - move: {from: .spec.replicas, to: .spec.scale.replicas}
  - move: {from: .spec.network.port, to: .spec.port}
  - move: {from: .spec.mode, to: .spec.mode, values: {Old: Legacy}}
  - move: {from: '.spec.rules[*].host', to: '.spec.rules[*].hostname'}
  - move: {from: '.spec.rules[*].hostname', to: '.spec.rules[*].host'}
  - only: {version: v1, path: .spec.engine, default: classic}
  - only: {version: v1beta1, path: .spec.note}
  - constant: {version: v1, path: .spec.api, value: gen2}
";

fn schema(spec: Value) -> Value {
    let mut schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    schema.set(&["properties", "spec", "properties"], spec);
    schema
}

fn v1beta1() -> Value {
    schema(json!({
        "colour": {"type": "string", "description": "differs"},
        "replicas": {"type": "integer"},
        "network": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}},
        "mode": {"type": "string", "enum": ["Old", "New"], "default": "Old"},
        "rules": {"type": "array", "items": {"type": "object", "properties": {
            "host": {"type": "string"}, "hostname": {"type": "string"}}}},
        "note": {"type": "string"},
        "same": {"type": "string", "nullable": true}
    }))
}

fn v1() -> Value {
    schema(json!({
        "color": {"type": "string", "maxLength": 10},
        "scale": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "network": {"type": "object", "properties": {"name": {"type": "string"}}},
        "port": {"type": "integer"},
        "mode": {"type": "string", "enum": ["New", "Legacy"], "default": "Legacy"},
        "rules": {"type": "array", "items": {"type": "object", "properties": {
            "host": {"type": "string"}, "hostname": {"type": "string"}}}},
        "engine": {"type": "string", "default": "classic"},
        "api": {"type": "string", "enum": ["gen2"], "default": "gen2"},
        "same": {"type": "string", "nullable": true}
    }))
}

fn definition(rules: &str, versions: &[(&str, Value)]) -> Value {
    let mut definition = json!({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io"}});
    definition.set(&["metadata", "annotations", ANNOTATION], rules);
    let versions = versions.iter().map(|(name, schema)| {
        let mut version = json!({"name": name});
        version.set(&["schema", "openAPIV3Schema"], schema.clone());
        version
    });
    definition.set(&["spec", "versions"], versions.collect::<Vec<_>>());
    definition
}

fn both(rules: &str) -> Value {
    definition(rules, &[("v1beta1", v1beta1()), ("v1", v1())])
}

fn conversion(definition: &Value) -> Declarative {
    Declarative::new(definition, annotation(definition).unwrap()).unwrap()
}

fn convert(by: &Declarative, object: &Value, version: &str) -> Value {
    by.one(object.clone(), &GroupVersion::new("x.io", version)).unwrap()
}

fn thing(version: &str, spec: Value) -> Value {
    let mut v = json!({"kind": "Thing", "metadata": {"name": "a"}});
    v.set(&["apiVersion"], GroupVersion::new("x.io", version).to_string());
    v.set(&["spec"], spec);
    v
}

#[test]
fn rules_are_applied_in_both_directions() {
    let definition = both(RULES);
    assert_eq!(
        validate(&definition)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [""; 0]
    );
    let by = conversion(&definition);
    let old = thing(
        "v1beta1",
        json!({"colour": "red", "replicas": 2, "network": {"port": 80}, "mode": "Old",
        "rules": [{"host": "a", "hostname": "b"}, {"host": "c"}], "same": null}),
    );
    let new = thing(
        "v1",
        json!({"color": "red", "scale": {"replicas": 2}, "port": 80, "mode": "Legacy",
        "rules": [{"hostname": "a", "host": "b"}, {"hostname": "c"}], "engine": "classic", "api": "gen2", "same": null}),
    );
    assert_eq!(convert(&by, &old, "v1"), new);
    assert_eq!(convert(&by, &new, "v1beta1"), old);
}

#[test]
fn fields_missing_in_a_version_are_kept_in_an_annotation() {
    let by = conversion(&both(RULES));
    let new = thing(
        "v1",
        json!({"mode": "New", "engine": "turbo", "api": "gen2", "network": {}, "scale": {}}),
    );
    let old = convert(&by, &new, "v1beta1");
    assert_eq!(old.get("spec"), &json!({"mode": "New", "network": {}}));
    let kept = old.at(&["metadata", "annotations"]).get("conversion.torana.dev/v1");
    assert_eq!(
        kept.as_str(),
        Some(r#"{"fields":{".spec.engine":"turbo"},"objects":[".spec.scale"]}"#)
    );
    assert_eq!(convert(&by, &old, "v1"), new);
    // A user who removes the annotation gets the default.
    let mut changed = old.clone();
    changed.unset(&["metadata", "annotations"]);
    assert_eq!(convert(&by, &changed, "v1").at(&["spec", "engine"]), &"classic".into());
    for garbage in [
        "{",
        "[]",
        r#"{"fields":[],"objects":{}}"#,
        r#"{"fields":{".metadata.name":"b"},"objects":[1,".kind"]}"#,
    ] {
        let mut changed = old.clone();
        changed.set(&["metadata", "annotations", "conversion.torana.dev/v1"], garbage);
        let read = convert(&by, &changed, "v1");
        assert_eq!((read.name(), read.str_at(&["kind"])), ("a", "Thing"));
        assert!(read.at(&["metadata", "annotations"]).is_null());
    }
}

#[test]
fn versions_without_a_pair_are_converted_through_others() {
    let rules = "[{from: v1alpha1, to: v1beta1, rules: [{move: {from: .spec.tint, to: .spec.colour}}]}, \
                  {from: v1beta1, to: v1, rules: [{move: {from: .spec.colour, to: .spec.color}}]}]";
    let spec = |field: &str| {
        let mut spec = json!({});
        spec.set(&[field], json!({"type": "string"}));
        schema(spec)
    };
    let versions = [
        ("v1alpha1", spec("tint")),
        ("v1beta1", spec("colour")),
        ("v1", spec("color")),
    ];
    let definition = definition(rules, &versions);
    assert!(validate(&definition).is_empty());
    let by = conversion(&definition);
    let old = thing("v1alpha1", json!({"tint": "red"}));
    let new = convert(&by, &old, "v1");
    assert_eq!(new, thing("v1", json!({"color": "red"})));
    assert_eq!(convert(&by, &new, "v1alpha1"), old);
    let unknown = by.one(thing("v0", json!({})), &GroupVersion::new("x.io", "v1"));
    assert_eq!(unknown.unwrap_err().0, "no rules lead from x.io/v0 to x.io/v1");
}

#[test]
fn rules_that_lose_something_are_refused_with_the_reason() {
    let one = |rule: &str| format!("[{{from: v1beta1, to: v1, rules: [{rule}]}}]");
    let refusal = |rules: &str, from: Value, to: Value| {
        let definition = definition(rules, &[("v1beta1", schema(from)), ("v1", schema(to))]);
        let errors: Vec<String> = validate(&definition).iter().map(ToString::to_string).collect();
        errors.join("\n")
    };
    let none = || json!({});
    let a = || json!({"a": {"type": "string"}});
    let b = || json!({"b": {"type": "string"}});
    let cases: [(String, Value, Value, &str); 17] = [
        (
            "[{from: v1beta1, to: v1}]".into(),
            a(),
            none(),
            ".spec.a has no counterpart in v1: it needs a rule",
        ),
        (
            "[{from: v1beta1, to: v1}]".into(),
            none(),
            b(),
            ".spec.b of v1 has no counterpart in v1beta1: it needs a rule",
        ),
        (
            "[{from: v1beta1, to: v1}]".into(),
            a(),
            json!({"a": {"type": "integer"}}),
            ".spec.a: type differs between v1beta1 and v1",
        ),
        (
            one("{move: {from: .spec.x, to: .spec.b}}"),
            a(),
            b(),
            ".spec.x does not exist in v1beta1",
        ),
        (
            one("{move: {from: .spec.a, to: .spec.b}}"),
            json!({"a": {"type": "string"}, "b": {"type": "string"}}),
            b(),
            ".spec.b exists in v1beta1 too",
        ),
        (
            one("{move: {from: .spec.a, to: .spec.b}}, {only: {version: v1beta1, path: .spec.a}}"),
            a(),
            b(),
            "two rules are about the same field of v1beta1",
        ),
        (
            one("{move: {from: .spec.a, to: .spec.b, values: {Old: New}}}"),
            json!({"a": {"type": "string", "enum": ["Old", "New"]}}),
            json!({"b": {"type": "string", "enum": ["New"]}}),
            "two values would have the same name",
        ),
        (
            one("{move: {from: .spec.a, to: .spec.b, values: {Old: New}}}"),
            json!({"a": {"type": "string", "enum": ["Old"]}}),
            json!({"b": {"type": "string", "enum": ["Old", "New"]}}),
            "its enum in v1 must have the values that the rule gives",
        ),
        (
            one("{only: {version: v1, path: .spec.b, default: x}}"),
            none(),
            b(),
            ".spec.b: the schema of v1 must have the same default",
        ),
        (
            one("{constant: {version: v1, path: .spec.b, value: x}}"),
            none(),
            json!({"b": {"type": "string", "default": "x"}}),
            ".spec.b: the enum of v1 must have this value only",
        ),
        (
            one("{only: {version: v1, path: .spec.b.c}}"),
            none(),
            json!({"b": {"type": "object", "properties": {"c": {"type": "string"}}}}),
            ".spec.b.c: .spec.b does not exist in v1beta1: make the rule for that",
        ),
        (
            one("{move: {from: .spec.a.x, to: .spec.b}}"),
            json!({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {"type": "string"}}}}),
            b(),
            ".spec.a.x: an object around it takes unknown fields in v1beta1",
        ),
        (
            one("{move: {from: .metadata.name, to: .spec.b}}"),
            a(),
            b(),
            "are the same in all versions",
        ),
        (
            one("{move: {from: spec.a, to: .spec.b}}"),
            a(),
            b(),
            "it must have the form .a.b or .a[*].b",
        ),
        (one("{shift: {}}"), a(), b(), "has the unknown field \"shift\""),
        ("[{from: v1beta1, to: v2}]".into(), a(), a(), "there is no version v2"),
        ("[]".into(), a(), a(), "no rules lead from v1beta1 to v1"),
    ];
    for (rules, from, to, why) in cases {
        let refused = refusal(&rules, from, to);
        assert!(refused.contains(why), "{rules}: {refused}\nexpected {why}");
        assert!(
            refused.starts_with("metadata.annotations[torana.dev/conversion]: Invalid value: "),
            "{refused}"
        );
    }
    let mut with_webhook = both(RULES);
    with_webhook.set(&["spec", "conversion", "strategy"], "Webhook");
    let refused = validate(&with_webhook)
        .iter()
        .map(ToString::to_string)
        .collect::<String>();
    assert!(
        refused.contains("must not be set when spec.conversion.strategy is Webhook"),
        "{refused}"
    );
}

fn text() -> impl Strategy<Value = Value> {
    "[a-c]{0,2}".prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    (0i64..3).prop_map(Value::from)
}

/// An object with some of these fields.
fn some_of(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| proptest::option::of(value).prop_map(move |v| v.map(|v| (name, v))))
        .collect();
    let object = |fields: Vec<Option<(&'static str, Value)>>| fields.into_iter().flatten().collect();
    fields.prop_map(move |fields| Value::Object(object(fields))).boxed()
}

fn rules() -> BoxedStrategy<Value> {
    let item = some_of(vec![("host", text().boxed()), ("hostname", text().boxed())]);
    proptest::collection::vec(item, 0..3).prop_map(Value::from).boxed()
}

fn same() -> BoxedStrategy<Value> {
    prop_oneof![Just(Value::Null), text()].boxed()
}

fn old_spec() -> BoxedStrategy<Value> {
    let network = some_of(vec![("port", number().boxed()), ("name", text().boxed())]);
    let mode = prop_oneof![Just("Old"), Just("New")].prop_map(Value::from).boxed();
    some_of(vec![
        ("colour", text().boxed()),
        ("replicas", number().boxed()),
        ("network", network),
        ("mode", mode),
        ("rules", rules()),
        ("note", text().boxed()),
        ("same", same()),
    ])
}

fn new_spec() -> BoxedStrategy<Value> {
    let mode = prop_oneof![Just("Legacy"), Just("New")].prop_map(Value::from).boxed();
    some_of(vec![
        ("color", text().boxed()),
        ("scale", some_of(vec![("replicas", number().boxed())])),
        ("network", some_of(vec![("name", text().boxed())])),
        ("port", number().boxed()),
        ("mode", mode),
        ("rules", rules()),
        ("engine", text().boxed()),
        ("same", same()),
    ])
}

/// A stored object as its version reads it.
fn settled(version: &str, spec: Option<Value>) -> (SchemaShape, Value) {
    let schema = match version {
        "v1" => v1(),
        _ => v1beta1(),
    };
    let gvk = GroupVersionKind::new("x.io", version, "Thing");
    let schema = KindSchema::parse(gvk, &schema, &FieldPath::default()).unwrap();
    let shape = SchemaShape::new(Arc::new(schema));
    let mut object = thing(version, Value::Null);
    object.unset(&["spec"]);
    if let Some(spec) = spec {
        object.set(&["spec"], spec);
    }
    shape.read(&mut object);
    (shape, object)
}

proptest! {
    #[test]
    fn every_round_trip_returns_the_object_it_began_with(
        old in proptest::option::of(old_spec()),
        new in proptest::option::of(new_spec()),
    ) {
        let by = conversion(&both(RULES));
        for (version, other, spec) in [("v1beta1", "v1", old), ("v1", "v1beta1", new)] {
            let (_, original) = settled(version, spec);
            let mut converted = convert(&by, &original, other);
            // Fields that the other version prunes must not be needed.
            settled(other, None).0.converted(&mut converted);
            let back = convert(&by, &converted, version);
            prop_assert_eq!(&back, &original, "through {:?}", converted);
        }
    }
}
