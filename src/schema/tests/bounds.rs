//! Bounds on the cost of validating an object against a schema.

use super::{refused, schema, spec};
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::json;
use crate::schema::limits::MAX_STEPS;
use crate::schema::validate::{self, Steps};
use crate::schema::{Node, StructuralSchema};

/// The errors of a value of `spec`, and the steps that it took to find them.
fn validated(s: &StructuralSchema, spec: &Value) -> (Vec<FieldError>, usize, u64) {
    let mut object = Value::object();
    object.set(&["spec"], spec.clone());
    let steps = Steps::new();
    let errors = validate::default_value(&s.root, &object, &FieldPath::default(), &steps);
    (errors.to_vec(), errors.total(), MAX_STEPS - steps.left())
}

#[test]
fn errors_beyond_the_limit_are_counted_without_their_text() {
    let s = schema(
        json!({"l": {"type": "array", "items": {"type": "object", "required": ["a", "b", "c"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}}}}}),
    );
    let mut v = Value::object();
    v.set(&["l"], vec![Value::object(); 10_000]);
    let (errors, total, steps) = validated(&s, &v);
    assert_eq!((errors.len(), total), (101, 30_000));
    assert_eq!(errors[3].field, "spec.l[1].a");
    assert!(steps < 25_000, "{steps}");
}

#[test]
fn errors_of_nested_branches_are_not_compared_at_each_level() {
    let names: Vec<String> = (0..90).map(|i| format!("f{i}")).collect();
    let mut inner = json!({});
    inner.set(&["required"], names);
    for _ in 0..150 {
        inner = json!({"allOf": [inner]});
    }
    let mut of = json!({"l": {"type": "array", "items": {"type": "object"}}});
    of.set(&["l", "items", "allOf"], vec![inner]);
    let s = StructuralSchema::compile(&spec(of)).unwrap();
    let (errors, _, steps) = validated(&s, &json!({"l": [{}]}));
    assert_eq!(errors.len(), 91, "the junctors add one, which names no branch");
    assert!(steps < 5_000, "{steps}");
}

#[test]
fn comparing_errors_of_branches_takes_steps() {
    let branch = |from: usize| {
        let names: Vec<String> = (from..from + 45).map(|i| format!("f{i}")).collect();
        let mut branch = json!({});
        branch.set(&["required"], names);
        branch
    };
    let steps = |branches: Vec<Value>| {
        let mut of = json!({"o": {"type": "object"}});
        of.set(&["o", "allOf"], branches);
        validated(&StructuralSchema::compile(&spec(of)).unwrap(), &json!({"o": {}})).2
    };
    let (one, two) = (steps(vec![branch(0)]), steps(vec![branch(0), branch(45)]));
    assert!(two > 2 * one + 50, "{one} {two}");
}

#[test]
fn the_text_of_an_enum_is_made_for_errors_that_are_kept() {
    let values: Vec<String> = (0..3_000)
        .map(|i| format!("a value of the enum with the number {i:10}"))
        .collect();
    let mut of = json!({"l": {"type": "array", "items": {"type": "string"}}});
    of.set(&["l", "items", "enum"], values);
    let s = schema(of);
    let mut v = Value::object();
    v.set(&["l"], vec!["x"; 4_000]);
    let (errors, total, steps) = validated(&s, &v);
    assert_eq!(total, 4_000);
    assert!(errors[0].detail.starts_with("supported values: \"a value"));
    assert!(errors[0].detail.ends_with(" more bytes)") && errors[0].detail.len() < 33_000);
    assert!(steps < 4_000 * 2 + 100 * 33_000 / 16, "{steps}");
}

#[test]
fn compiling_a_pattern_takes_steps() {
    let s = schema(json!({"t": {"type": "string", "pattern": "^[a-z]{0,500}$"}}));
    let object = json!({"t": "a"});
    let (first, second) = (validated(&s, &object).2, validated(&s, &object).2);
    assert!(first > second + 1_000, "{first} {second}");
}

#[test]
fn defaults_of_a_schema_share_one_step_budget() {
    let mut properties = json!({});
    for i in 0..40 {
        let mut one = json!({"type": "string", "pattern": "^a[a-z]{0,500}$"});
        one.set(&["default"], "b".repeat(10_000));
        properties.set(&[&format!("p{i}")], one);
    }
    let errors = refused(spec(properties));
    assert!(
        errors.iter().any(|e| e.contains("takes too many steps to validate")),
        "{}",
        errors.len()
    );
}

#[test]
fn defaults_of_a_schema_share_one_cost_budget() {
    let mut properties = json!({});
    for i in 0..40 {
        let mut one = json!({"type": "array", "maxItems": 200, "items": {"type": "integer"},
            "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x >= 0 && y >= 0))"}]});
        one.set(&["default"], vec![1i64; 200]);
        properties.set(&[&format!("p{i}")], one);
    }
    let errors = refused(spec(properties));
    assert!(
        errors.iter().any(|e| e.contains("running out of cost budget")),
        "{errors:?}"
    );
}

#[test]
fn rules_of_an_object_share_the_work_on_regular_expressions() {
    let s = StructuralSchema::compile(&spec(json!({"l": {"type": "array", "items": {"type": "string",
        "x-kubernetes-validations": [{"rule": "!self.matches('^b[a-z]{0,900}$')"}]}}})))
    .unwrap();
    let errors = |n: usize| {
        let mut object = json!({"metadata": {"name": "a"}});
        object.set(&["spec", "l"], vec!["a".repeat(15_000); n]);
        s.validate_rules(&object, None, &crate::apimachinery::field::ErrorList::new())
    };
    assert_eq!(errors(1).len(), 0);
    let many = errors(100);
    assert_eq!(many.len(), 1, "it is the last");
    assert!(
        many[0].detail.contains("call cost exceeds limit for rule"),
        "{}",
        many[0]
    );
}

#[test]
fn every_schema_around_an_embedded_object_is_marked() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let mut of = json!({"m": {"type": "object", "additionalProperties": {"type": "array"}}, "x": {"type": "string"}});
    of.set(&["m", "additionalProperties", "items"], embedded);
    let s = schema(of);
    let at = |node: &Node, name: &str| node.property(name).unwrap().has_embedded;
    let inner = s.root.property("spec").unwrap();
    assert!(s.root.has_embedded && inner.has_embedded && at(inner, "m") && !at(inner, "x"));
}
