use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

#[test]
fn binding_errors_match_the_recordings() {
    let errors = |edits: Value| {
        let mut v = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
        for (k, x) in edits.as_object().unwrap().iter() {
            v.set(&["spec", k], x.clone());
        }
        aggregate(&binding(&v, false))
    };
    assert_eq!(errors(json!({"policyName": ""})), "spec.policyName: Required value");
    assert_eq!(
        errors(json!({"validationActions": []})),
        "spec.validationActions: Required value: at least one validation action is required"
    );
    assert_eq!(
        errors(json!({"validationActions": ["X"]})),
        "spec.validationActions[0]: Unsupported value: \"X\": supported values: \"Audit\", \"Deny\", \"Warn\""
    );
    assert_eq!(
        errors(json!({"validationActions": ["Deny", "Deny"]})),
        "spec.validationActions[1]: Duplicate value: \"Deny\""
    );
    assert!(
        errors(json!({"validationActions": ["a&b", "a&b"]}))
            .contains("validationActions[1]: Duplicate value: \"a\\u0026b\"")
    );
    assert!(
        errors(json!({"validationActions": ["Deny", "Warn"]}))
            .starts_with("spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both")
    );
    assert_eq!(
        errors(json!({"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}})),
        "[spec.paramRef.name: Forbidden: name and selector are mutually exclusive, spec.paramRef.selector: Forbidden: name and selector are mutually exclusive]"
    );
    assert_eq!(
        errors(json!({"paramRef": {"parameterNotFoundAction": "Deny"}})),
        "spec.paramRef: Required value: one of name or selector must be specified"
    );
    assert_eq!(
        errors(json!({"paramRef": {"name": "a"}})),
        "spec.paramRef.parameterNotFoundAction: Required value"
    );
}

#[test]
fn expression_errors_are_in_field_order() {
    let v = json!({"metadata": {"name": "x"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "variables": [{"name": "a", "expression": "("}, {"name": "b", "expression": ""}],
        "validations": [{"expression": "1"}, {"expression": ""}]}});
    let errors = policy(&v, None, false);
    let fields: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let starts = [
        "spec.variables[0].expression: Invalid value",
        "spec.variables[1].expression: Required value",
        "spec.validations[0].expression: Invalid value",
        "spec.validations[1].expression: Required value",
    ];
    assert_eq!(fields.len(), starts.len(), "{fields:?}");
    for (field, start) in fields.iter().zip(starts) {
        assert!(field.starts_with(start), "{fields:?}");
    }
}

#[test]
fn incomplete_variables_and_parameters_are_declared() {
    let v = json!({"metadata": {"name": "x"}, "spec": {"paramKind": {"kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "has(params.data)"}, {"expression": "variables.a"}]}});
    let errors: Vec<_> = policy(&v, None, false).iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("spec.paramKind.apiVersion"), "{errors:?}");
    assert!(errors[1].contains("<input>:1:10: undefined field 'a'"), "{errors:?}");
}

#[test]
fn white_space_around_expressions_counts_unless_upstream_trims_it() {
    let v = json!({"metadata": {"name": "x"}, "spec": {"reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "variables": [{"name": "v", "expression": " a"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " a "}}]}});
    let errors: Vec<_> = policy(&v, None, true).iter().map(ToString::to_string).collect();
    let undeclared = "undeclared reference to 'a' (in container '')";
    assert_eq!(
        errors,
        [
            format!(
                "spec.variables[0].expression: Invalid value: \" a\": compilation failed: ERROR: <input>:1:2: {undeclared}\n |  a\n | .^"
            ),
            format!(
                "spec.mutations[0].jsonPatch.expression: Invalid value: \"a\": compilation failed: ERROR: <input>:1:1: {undeclared}\n | a\n | ^"
            ),
        ]
    );
}

#[test]
fn mutating_policy_errors_match_the_recordings() {
    let errors = |edits: Value| {
        let mut v = json!({"metadata": {"name": "x"}, "spec": {"reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/data'}]"}}]}});
        for (k, x) in edits.as_object().unwrap().iter() {
            v.set(&["spec", k], x.clone());
        }
        aggregate(&policy(&v, None, true))
    };
    assert_eq!(errors(json!({})), "[]");
    assert_eq!(
        errors(json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]})),
        "spec.mutations[0].jsonPatch.expression: Invalid value: \"[]\": must evaluate to list(JSONPatch) but got list(dyn)"
    );
    assert_eq!(
        errors(json!({"mutations": []})),
        "spec.mutations: Required value: mutations must contain at least one item"
    );
    assert_eq!(
        errors(json!({"mutations": [{"patchType": "X"}]})),
        "spec.mutations[0].patchType: Unsupported value: \"X\": supported values: \"ApplyConfiguration\", \"JSONPatch\""
    );
    assert_eq!(
        errors(json!({"reinvocationPolicy": ""})),
        "spec.reinvocationPolicy: Required value"
    );
}

#[test]
fn operations_that_mutating_policies_cannot_match_are_refused_after_unknown_ones() {
    let rules = |operation: &str| json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": [(operation)], "resources": ["pods"]}]);
    let of = |mutating: bool, key: &str, operation: &str| {
        let mut v = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
        v.set(&["spec", "matchResources", key], rules(operation));
        aggregate(&binding(&v, mutating))
    };
    let (at, all) = (
        "spec.matchResources",
        "\"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
    );
    let flat = "\"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"";
    assert_eq!(
        of(true, "resourceRules", "X"),
        format!(
            "[{at}.resourceRules[0].operations[0]: Unsupported value: \"X\": supported values: {all}, \
             {at}.resourceRules.operations: Unsupported value: \"X\": supported values: {flat}]"
        )
    );
    assert_eq!(
        of(true, "resourceRules", "DELETE"),
        format!("{at}.resourceRules.operations: Unsupported value: \"DELETE\": supported values: {flat}")
    );
    // Exclusions may name any operation.
    assert_eq!(of(true, "excludeResourceRules", "DELETE"), "[]");
    assert_eq!(of(false, "resourceRules", "DELETE"), "[]");
}

#[test]
fn unchanged_match_conditions_are_not_checked_again() {
    let condition = json!([{"name": "a", "expression": "params.x == 'y'"}]);
    let mut old = json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    old.set(&["spec", "matchConditions"], condition);
    let checked = |new: &Value, old: Option<&Value>| aggregate(&policy(new, old, false)).contains("matchConditions");
    let mut new = old.clone();
    assert!(!checked(&new, Some(&old)));
    // Without parameters the same condition is invalid.
    new.unset(&["spec", "paramKind"]);
    assert!(checked(&new, Some(&old)) && checked(&new, None));
    assert!(!checked(&new, Some(&new)));
}

#[test]
fn expressions_that_upstream_does_not_compile_are_not_reported() {
    let bad = json!({"expression": "::1"});
    let mut v = json!({"metadata": {"name": "x"}, "spec": {"reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "mutations": [{"patchType": "X"}, {}]}});
    for mutation in v.at_mut(&["spec", "mutations"]).and_then(Value::as_array_mut).unwrap() {
        mutation.set(&["applyConfiguration"], bad.clone());
    }
    assert_eq!(
        aggregate(&policy(&v, None, true)),
        "[spec.mutations[0].patchType: Unsupported value: \"X\": supported values: \"ApplyConfiguration\", \"JSONPatch\", \
         spec.mutations[1].patchType: Required value]"
    );
    let long = format!("'{}' + 1", "a".repeat(5200));
    let mut v = json!({"metadata": {"name": "x"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}}});
    v.set(
        &["spec", "auditAnnotations"],
        json!([{"key": "a", "valueExpression": (long)}, {"key": "b", "valueExpression": "1"}]),
    );
    let found = policy(&v, None, false);
    let fields: Vec<_> = found.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.auditAnnotations[0].valueExpression",
            "spec.auditAnnotations[1].valueExpression"
        ]
    );
    assert_eq!(found[0].detail, "must not exceed 5120 bytes in length");
}

#[test]
fn names_of_variables_are_identifiers_and_no_keywords() {
    let of = |name: &str| {
        let v = json!({"metadata": {"name": "x"}, "spec": {"validations": [{"expression": "true"}],
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "variables": [{"name": (name), "expression": "1"}]}});
        aggregate(&policy(&v, None, false))
    };
    assert_eq!(of("a"), "[]");
    for word in ["true", "namespace", "in", "1a"] {
        let wanted = format!("spec.variables[0].name: Invalid value: {word:?}: must be a valid CEL identifier");
        assert!(of(word).contains(&wanted), "{}", of(word));
    }
    assert!(of(" ").contains("spec.variables[0].name: Required value: name is not specified"));
}

#[test]
fn a_status_has_valid_conditions_and_warnings_about_fields() {
    let v = json!({"status": {
        "typeChecking": {"expressionWarnings": [
            {"fieldRef": " spec.validations[0].expression ", "warning": "w"}, {"fieldRef": "*"}, {"warning": "w"}]},
        "conditions": [{"type": "a", "status": "True", "observedGeneration": -1, "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let found: Vec<_> = status(&v).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "status.typeChecking.expressionWarnings[1].warning: Required value",
            "status.typeChecking.expressionWarnings[1].fieldRef: Invalid value: \"*\": invalid JSONPath: unrecognized character in action: U+002A '*'",
            "status.typeChecking.expressionWarnings[2].fieldRef: Required value",
            "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
            "status.conditions[0].reason: Required value",
        ]
    );
    assert!(status(&json!({})).is_empty());
}
