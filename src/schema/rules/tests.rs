use super::super::StructuralSchema;
use crate::apimachinery::codec::json::to_string;
use crate::apimachinery::field::aggregate;
use crate::apimachinery::value::Value;
use crate::json;
use proptest::prelude::*;

/// A schema with these properties of `spec`, which has these rules.
fn source(properties: Value, rules: Value) -> Value {
    let mut spec = json!({"type": "object"});
    spec.set(&["properties"], properties);
    spec.set(&["x-kubernetes-validations"], rules);
    let mut schema = json!({"type": "object"});
    schema.set(&["properties", "spec"], spec);
    schema
}

fn schema(properties: Value, rules: Value) -> StructuralSchema {
    let source = source(properties, rules);
    StructuralSchema::parse(&source)
        .map_err(|e| aggregate(&e))
        .unwrap_or_else(|e| panic!("{e} in {}", to_string(&source)))
}

/// The errors in the rules of a definition.
fn refused(properties: Value, rules: Value) -> Vec<String> {
    let errors = StructuralSchema::parse(&source(properties, rules))
        .err()
        .unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

fn spec(v: Value) -> Value {
    let mut o = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}});
    o.set(&["spec"], v);
    o
}

fn update(s: &StructuralSchema, new: Value, old: Option<Value>) -> Vec<String> {
    let (new, old) = (spec(new), old.map(spec));
    let before = s.validate(&new, old.as_ref());
    let errors = s.validate_rules(&new, old.as_ref(), &before);
    errors.iter().map(ToString::to_string).collect()
}

fn create(s: &StructuralSchema, new: Value) -> Vec<String> {
    update(s, new, None)
}

const RULE: &str = "spec.x: Invalid value: 1: failed rule: self > 1";

fn with_x(rule: Value) -> StructuralSchema {
    let mut x = json!({"type": "integer"});
    x.set(&["x-kubernetes-validations"], vec![rule]);
    let mut properties = json!({"y": {"type": "integer"}});
    properties.set(&["x"], x);
    schema(properties, json!([]))
}

#[test]
fn a_failed_rule_is_reported_at_its_value_with_its_reason() {
    let wrong = |rule: Value| create(&with_x(rule), json!({"x": 1}));
    assert_eq!(wrong(json!({"rule": "self > 1"})), [RULE]);
    assert_eq!(wrong(json!({"rule": "self > 0"})), [""; 0]);
    assert_eq!(
        wrong(json!({"rule": "self > 1", "message": " too small "})),
        ["spec.x: Invalid value: 1: too small"]
    );
    assert_eq!(
        wrong(json!({"rule": "self > 1", "reason": "FieldValueForbidden"})),
        ["spec.x: Forbidden: failed rule: self > 1"]
    );
    assert_eq!(
        wrong(json!({"rule": "self > 1", "reason": "FieldValueRequired", "message": "m"})),
        ["spec.x: Required value: m"]
    );
    assert_eq!(
        wrong(json!({"rule": "self > 1", "reason": "FieldValueDuplicate", "message": "m"})),
        ["spec.x: Duplicate value: 1"]
    );
    assert_eq!(
        wrong(json!({"rule": "self > 1", "messageExpression": "'got %d'.format([self])", "message": "m"})),
        ["spec.x: Invalid value: 1: got 1"]
    );
    for useless in ["''", "'a\\nb'", "string(self / 0)"] {
        assert_eq!(
            wrong(json!({"rule": "self > 1", "messageExpression": useless, "message": "m"})),
            ["spec.x: Invalid value: 1: m"]
        );
    }
    assert_eq!(
        wrong(json!({"rule": "1 / (self - 1) > 1"})),
        ["spec.x: Invalid value: \"integer\": division by zero evaluating rule: 1 / (self - 1) > 1"]
    );
}

/// Upstream's estimates know no size of a number as a string, only of a template that is filled.
#[test]
fn messages_that_add_numbers_as_strings_are_estimated_as_upstream() {
    let errors = |message: &str| {
        let mut rule = json!({"rule": "true"});
        rule.set(&["messageExpression"], message);
        refused(json!({"max": {"type": "integer"}}), vec![rule].into())
    };
    for fine in ["string(self.max)", "'at most %d'.format([self.max])"] {
        assert_eq!(errors(fine), [""; 0], "{fine}");
    }
    let found = errors("'at most ' + string(self.max)");
    let wanted =
        "messageExpression: Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x";
    assert!(found[0].contains(wanted), "{found:?}");
}

#[test]
fn an_object_is_not_shown_and_a_field_path_is_appended() {
    let numbers = json!({"min": {"type": "integer"}, "max": {"type": "integer"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}}});
    let rule = |path: &str| {
        let mut rule = json!({"rule": "self.min <= self.max", "message": "min must not exceed max"});
        rule.set(&["fieldPath"], path);
        let mut rules = json!([]);
        rules.as_array_mut().unwrap().push(rule);
        create(&schema(numbers.clone(), rules), json!({"min": 2, "max": 1}))
    };
    assert_eq!(rule(""), ["spec: Invalid value: min must not exceed max"]);
    assert_eq!(rule(".min"), ["spec.min: Invalid value: min must not exceed max"]);
    assert_eq!(
        rule(".m['a b']"),
        ["spec.m[a b]: Invalid value: min must not exceed max"]
    );
}

#[test]
fn transition_rules_run_when_there_is_an_old_value() {
    let s = schema(
        json!({"size": {"type": "integer"}}),
        json!([{"rule": "self.size >= oldSelf.size", "message": "may not shrink"}]),
    );
    assert_eq!(create(&s, json!({"size": 1})), [""; 0]);
    assert_eq!(update(&s, json!({"size": 2}), Some(json!({"size": 1}))), [""; 0]);
    let shrunk = update(&s, json!({"size": 1}), Some(json!({"size": 2})));
    assert_eq!(shrunk, ["spec: Invalid value: may not shrink"]);
    let optional = with_x(
        json!({"rule": "oldSelf.hasValue() ? self > oldSelf.value() : self == 1",
        "optionalOldSelf": true, "message": "m"}),
    );
    assert_eq!(create(&optional, json!({"x": 1})), [""; 0]);
    assert_eq!(create(&optional, json!({"x": 2})), ["spec.x: Invalid value: 2: m"]);
    assert_eq!(update(&optional, json!({"x": 2}), Some(json!({"x": 1}))), [""; 0]);
    assert_eq!(
        update(&optional, json!({"x": 1}), Some(json!({"x": 1}))),
        ["spec.x: Invalid value: 1: m"]
    );
}

#[test]
fn items_of_maps_correlate_by_their_keys() {
    let s = schema(
        json!({"l": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"],
                "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "immutable"}],
                "properties": {"k": {"type": "string", "maxLength": 9}, "v": {"type": "integer"}}}}}),
        json!([]),
    );
    let old = json!({"l": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]});
    let moved = json!({"l": [{"k": "c", "v": 9}, {"k": "b", "v": 2}, {"k": "a", "v": 1}]});
    assert_eq!(update(&s, moved, Some(old.clone())), [""; 0]);
    let changed = json!({"l": [{"k": "b", "v": 3}]});
    assert_eq!(update(&s, changed, Some(old)), ["spec.l[0]: Invalid value: immutable"]);
}

#[test]
fn failures_of_unchanged_values_are_warnings() {
    let s = with_x(json!({"rule": "self > 1"}));
    let (old, new) = (spec(json!({"x": 1, "y": 1})), spec(json!({"x": 1, "y": 2})));
    assert_eq!(update(&s, json!({"x": 1, "y": 2}), Some(json!({"x": 1}))), [""; 0]);
    assert_eq!(s.rule_warnings(&new, &old), [RULE]);
    assert_eq!(update(&s, json!({"x": 1}), Some(json!({"x": 2}))), [RULE]);
    let transition = with_x(json!({"rule": "self > oldSelf"}));
    assert_eq!(update(&transition, json!({"x": 1}), Some(json!({"x": 1}))).len(), 1);
    assert!(transition.rule_warnings(&old, &old).is_empty());
}

#[test]
fn root_rules_can_read_only_the_name_of_the_metadata() {
    let mut v = source(json!({}), json!([]));
    v.set(
        &["x-kubernetes-validations"],
        json!([{"rule": "self.metadata.name == 'b' || self.kind == 'x' || self.apiVersion == 'y'"}]),
    );
    let s = StructuralSchema::parse(&v).unwrap();
    let wrong = create(&s, json!({}));
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].starts_with("<nil>: Invalid value: failed rule: "), "{wrong:?}");
    v.set(
        &["x-kubernetes-validations"],
        json!([{"rule": "has(self.metadata.labels)"}]),
    );
    let errors = StructuralSchema::parse(&v).unwrap_err();
    assert!(errors[0].detail.contains("undefined field 'labels'"), "{}", errors[0]);
}

#[test]
fn rules_see_values_as_their_schemas_declare_them() {
    let properties = json!({
        "port": {"x-kubernetes-int-or-string": true},
        "d": {"type": "string", "format": "duration"},
        "my-field": {"type": "string"},
        "n": {"type": "number"},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
        "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "z": {"type": "string", "nullable": true}});
    let holds = |rule: &str| {
        let mut rules = json!([{"message": "no"}]);
        rules.as_array_mut().unwrap()[0].set(&["rule"], rule);
        let s = schema(properties.clone(), rules);
        let v = json!({"port": "http", "d": "1m", "my-field": "x", "n": 1, "s": ["a", "b"], "z": null,
            "e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}});
        assert_eq!(create(&s, v), [""; 0], "{rule}");
    };
    holds("type(self.port) == string && self.port == 'http'");
    holds("self.d == duration('60s')");
    holds("self.my__dash__field == 'x'");
    holds("self.n == 1.0");
    holds("self.s == ['b', 'a']");
    holds("self.e.kind == 'Pod' && self.e.metadata.name == 'p'");
    holds("!has(self.z)");
}

#[test]
fn expressions_that_do_not_compile_are_refused() {
    let x = || json!({"x": {"type": "integer"}});
    let wrong = refused(x(), json!([{"rule": "self.y"}]));
    let at = "properties[spec].x-kubernetes-validations[0]";
    let shown =
        r#"{"Rule":"self.y","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}"#;
    let expected = format!(
        "{at}.rule: Invalid value: {shown}: compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y\n | ....^"
    );
    assert_eq!(wrong, [expected]);
    let detail = |rules: Value| {
        refused(x(), rules)
            .iter()
            .map(|e| e.rsplit("}: ").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        detail(json!([{"rule": "self.x"}])),
        ["cel expression must evaluate to a bool"]
    );
    assert_eq!(
        detail(json!([{"rule": "true", "messageExpression": "self.x"}])),
        ["messageExpression must evaluate to a string"]
    );
    // Messages see the old value as their rules do.
    let optional = |message: &str| {
        let mut rule = json!({"rule": "!oldSelf.hasValue()", "optionalOldSelf": true});
        rule.set(&["messageExpression"], message);
        let mut x = json!({"x": {"type": "string"}});
        x.set(&["x", "x-kubernetes-validations"], vec![rule]);
        refused(x, json!([])).join("\n")
    };
    assert_eq!(optional("oldSelf.hasValue() ? 'was set' : 'was unset'"), "");
    let wrong = optional("'was ' + oldSelf");
    assert!(
        wrong.contains("found no matching overload for '_+_' applied to '(string, optional_type(string))'"),
        "{wrong}"
    );
    assert_eq!(
        refused(x(), json!([{"rule": "true", "optionalOldSelf": true}])),
        [format!(
            "{at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
        )]
    );
    // The form comes first.
    assert_eq!(
        refused(x(), json!([{"rule": "self.y", "message": " "}])),
        [format!(
            "{at}.message: Invalid value: \" \": must be non-empty if specified"
        )]
    );
}

#[test]
fn rules_below_a_schema_without_a_declaration_are_refused_if_they_are_in_the_scope_of_others() {
    let refused = |type_of_x: &str, around: Value| {
        let mut x =
            json!({"properties": {"y": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}}});
        x.set(&["type"], type_of_x);
        let mut properties = json!({});
        properties.set(&["x"], x);
        refused(properties, around)
    };
    let why = "properties[spec].properties[x].properties[y].x-kubernetes-validations: Internal error: internal error: \
        failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
    let is_reported = |errors: Vec<String>| errors.iter().any(|e| e == why);
    assert!(is_reported(refused("text", json!([{"rule": "true"}]))));
    // Alone, the rule only needs the declaration of its own schema.
    assert!(!is_reported(refused("text", json!([]))));
    assert_eq!(refused("object", json!([{"rule": "true"}])), [""; 0]);
}

#[test]
fn old_self_is_unavailable_in_lists_without_keys() {
    let wrong = refused(
        json!({"l": {"type": "array", "maxItems": 3, "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}),
        json!([]),
    );
    assert_eq!(
        wrong,
        [
            "properties[spec].properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": \
          oldSelf cannot be used on the uncorrelatable portion of the schema within properties[spec].properties[l]"
        ]
    );
}

#[test]
fn rules_that_may_cost_too_much_are_refused() {
    let strings = |limit: Option<i64>| {
        let mut l = json!({"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]});
        if let Some(limit) = limit {
            l.set(&["maxItems"], limit);
            l.set(&["items", "maxLength"], limit);
        }
        let mut properties = Value::object();
        properties.set(&["l"], l);
        refused(properties, json!([]))
    };
    assert_eq!(strings(Some(10)), [""; 0]);
    let wrong = strings(None);
    let hint = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let at = "properties[spec].properties[l].x-kubernetes-validations[0].rule: Forbidden:";
    assert_eq!(
        wrong,
        [
            format!("{at} estimated rule cost exceeds budget by factor of more than 100x {hint}"),
            format!("{at} contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"),
            format!(
                "<nil>: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {hint}"
            ),
        ]
    );
}

#[test]
fn evaluation_stops_when_the_budget_is_spent() {
    // As it may be stored: compiled without the checks of a definition.
    let rules = json!([{"rule": "self.l.all(x, self.l.all(y, x >= 0 && y >= 0))", "message": "m"}, {"rule": "false"}]);
    let s = StructuralSchema::compile(&source(
        json!({"l": {"type": "array", "items": {"type": "integer"}}}),
        rules,
    ))
    .unwrap();
    let mut v = Value::object();
    v.set(&["l"], vec![Value::Int(1); 2_000]);
    assert_eq!(
        create(&s, v),
        [
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules \
          will be run due to call cost exceeds limit for rule: m"
        ]
    );
    let all = vec![json!({"rule": "self.l.all(x, self.l.all(y, x >= 0 && y >= 0))"}); 200];
    let s = StructuralSchema::compile(&source(
        json!({"l": {"type": "array", "items": {"type": "integer"}}}),
        Value::from(all),
    ))
    .unwrap();
    let mut v = Value::object();
    v.set(&["l"], vec![Value::Int(1); 150]);
    assert_eq!(
        create(&s, v),
        [
            "spec: Invalid value: \"object\": validation failed due to running out of cost budget, no further validation rules will be run"
        ]
    );
}

#[test]
fn rules_wait_until_the_object_has_its_types() {
    let s = with_x(json!({"rule": "self > 1"}));
    let wrong = update(&s, json!({"x": "a"}), None);
    assert_eq!(
        wrong,
        [
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
          correct the existing errors to complete validation"
        ]
    );
}

#[test]
fn defaults_are_validated_by_the_rules() {
    let x = json!({"x": {"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1"}]}});
    assert_eq!(
        refused(x, json!([])),
        ["properties[spec].properties[x].default: Invalid value: 1: failed rule: self > 1"]
    );
}

#[test]
fn defaults_within_metadata_are_validated_by_the_rules() {
    let name = json!({"type": "string", "default": "a", "x-kubernetes-validations": [{"rule": "self != 'a'"}]});
    let mut embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
    embedded.set(&["properties", "metadata"], json!({"type": "object"}));
    embedded.set(&["properties", "metadata", "properties", "name"], name);
    let mut properties = json!({});
    properties.set(&["e"], embedded);
    assert_eq!(
        refused(properties, json!([])),
        [
            "properties[spec].properties[e].properties[metadata].properties[name].default: Invalid value: \"a\": \
          failed rule: self != 'a'"
        ]
    );
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Float),
        "[a-c]{0,3}|1[smh]|2020-01-01".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec(("[a-h]", inner), 0..6).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    /// An object with arbitrary values in the fields that rules read has at most one error per rule and value.
    #[test]
    fn rules_over_arbitrary_objects_do_not_panic(new in tree(), old in tree()) {
        let s = StructuralSchema::compile(&source(
            json!({
                "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]},
                "b": {"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self > duration('1s')"}]},
                "c": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{"rule": "self > 1"}]},
                "d": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
                    "x-kubernetes-validations": [{"rule": "self.all(x, x.size() > 1) && self == oldSelf"}]},
                "e": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items":
                    {"type": "object", "properties": {"a": {"type": "string"}},
                    "x-kubernetes-validations": [{"rule": "self.a == oldSelf.a", "messageExpression": "self.a + oldSelf.a"}]}},
                "f": {"type": "object", "additionalProperties": {"type": "number", "nullable": true},
                    "x-kubernetes-validations": [{"rule": "self.all(k, self[k] > 1.0)"}]}}),
            json!([{"rule": "self == oldSelf", "optionalOldSelf": false}, {"rule": "has(self.a) && self.f.a > self.f.b"}]),
        )).unwrap();
        let (new, old) = (spec(new), spec(old));
        let none = Default::default();
        s.validate_rules(&new, None, &none);
        prop_assert!(s.validate_rules(&new, Some(&old), &none).len() <= 100);
        s.rule_warnings(&new, &new);
    }
}
