//! Policies over a fixed cluster.

use super::policies::Snapshot;
use super::stored::{Binding, ValidatingPolicy};
use super::*;
use crate::admission::Operation;
use crate::admission::testing::{cluster, request, update};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::status::Status;
use crate::authz::AlwaysAllow;
use crate::json;
use crate::request::{AuditLevel, AuditTrail};
use prometheus::Registry;

/// A policy `p` for configmaps with these members of `spec`, and a binding `b` with these.
struct World {
    surroundings: Surroundings<AdmissionPolicyMetrics>,
    snapshot: Snapshot<ValidatingPolicy>,
}

fn with(mut object: Value, edits: &Value) -> Value {
    for (key, value) in edits.as_object().into_iter().flat_map(|m| m.iter()) {
        object.set(&["spec", key], value.clone());
    }
    object
}

fn policy(edits: &Value) -> Value {
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]}]}}});
    with(policy, edits)
}

impl World {
    fn new(policy_edits: &Value, binding_edits: &Value) -> Self {
        let binding = with(
            json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}),
            binding_edits,
        );
        let policies = [Arc::new(ValidatingPolicy::parse(&policy(policy_edits)))];
        let bindings = [Arc::new(Binding::parse(&binding))];
        let namespace = json!({"metadata": {"name": "ns", "labels": {"team": "a"}}});
        Self {
            surroundings: Surroundings {
                cluster: cluster(&[("", "namespaces", vec![namespace])]),
                authorizer: Arc::new(AlwaysAllow),
                metrics: AdmissionPolicyMetrics::new(&Registry::new()),
                conditions: MatchConditionMetrics::new(&Registry::new()),
            },
            snapshot: Snapshot::new(policies.iter(), bindings.iter()),
        }
    }

    async fn admit(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        validating::dispatch(&self.surroundings, &self.snapshot, attributes, object).await
    }
}

fn create() -> Attributes {
    Attributes {
        kind: GroupVersionKind::new("", "v1", "ConfigMap"),
        ..request(Operation::Create, "", "configmaps", "c")
    }
}

fn message(outcome: Result<()>) -> String {
    outcome.err().map_or_else(String::new, |s: Status| s.message)
}

#[tokio::test]
async fn a_failed_validation_denies_as_upstream() {
    let world = World::new(
        &json!({"variables": [{"name": "n", "expression": "size(object.data)"}, {"name": "double", "expression": "variables.n * 2"}],
            "validations": [{"expression": "variables.double < 4", "messageExpression": "'is ' + string(variables.double)"}]}),
        &json!({}),
    );
    assert_eq!(message(world.admit(&create(), &json!({"data": {"a": "1"}})).await), "");
    let refused = world
        .admit(&create(), &json!({"data": {"a": "1", "b": "2"}}))
        .await
        .unwrap_err();
    let cause = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: is 4";
    assert_eq!(refused.message, format!("configmaps \"c\" is forbidden: {cause}"));
    assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    assert_eq!(refused.details.unwrap().causes[0].message, cause);
}

#[tokio::test]
async fn expressions_see_the_request_its_namespace_and_the_authorizer() {
    for (expression, holds) in [
        (
            "request.operation == 'CREATE' && request.userInfo.username == 'admin'",
            true,
        ),
        ("has(request.subResource)", false),
        ("namespaceObject.metadata.labels['team'] == 'a'", true),
        ("oldObject == null", true),
        ("authorizer.group('').resource('pods').check('get').allowed()", true),
        ("authorizer.requestResource.check('delete').allowed()", true),
    ] {
        let world = World::new(&json!({"validations": [{"expression": expression}]}), &json!({}));
        let outcome = world.admit(&create(), &json!({})).await;
        assert_eq!(outcome.is_ok(), holds, "{expression}: {outcome:?}");
    }
    let frozen = json!({"validations": [{"expression": "object.data == oldObject.data", "reason": "Forbidden"}]});
    let world = World::new(&frozen, &json!({}));
    let write = update("", "configmaps", json!({"metadata": {"name": "c"}, "data": {"a": "1"}}));
    assert!(world.admit(&write, &json!({"data": {"a": "1"}})).await.is_ok());
    assert_eq!(
        world
            .admit(&write, &json!({"data": {"a": "2"}}))
            .await
            .unwrap_err()
            .code,
        403
    );
}

#[tokio::test]
async fn warnings_and_audit_annotations_admit_the_write() {
    let world = World::new(
        &json!({"validations": [{"expression": "false", "message": "no"}],
            "auditAnnotations": [{"key": "who", "valueExpression": "request.userInfo.username"}, {"key": "none", "valueExpression": "null"}]}),
        &json!({"validationActions": ["Warn", "Audit"]}),
    );
    let write = Attributes {
        audit: AuditTrail::new(AuditLevel::Metadata, false),
        ..create()
    };
    assert!(world.admit(&write, &json!({})).await.is_ok());
    assert_eq!(
        write.warnings.take(),
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]
    );
    let annotations = write.audit.snapshot().annotations;
    assert_eq!(annotations["p/who"], "admin");
    assert!(!annotations.contains_key("p/none"));
    assert_eq!(
        annotations["validation.policy.admission.k8s.io/validation_failure"],
        r#"[{"binding":"b","expressionIndex":0,"message":"no","policy":"p","validationActions":["Warn","Audit"]}]"#
    );
}

#[tokio::test]
async fn failure_policy_decides_about_errors() {
    let spec =
        |failure: &str| json!({"failurePolicy": failure, "validations": [{"expression": "object.data.x == 'y'"}]});
    let object = json!({"data": {}});
    let fail = World::new(&spec("Fail"), &json!({}));
    assert!(
        message(fail.admit(&create(), &object).await)
            .ends_with("denied request: expression 'object.data.x == 'y'' resulted in error: no such key: x")
    );
    let ignore = World::new(&spec("Ignore"), &json!({}));
    assert!(ignore.admit(&create(), &object).await.is_ok());
}

#[tokio::test]
async fn a_match_condition_that_is_false_outweighs_errors() {
    for (conditions, applies) in [
        (
            json!([{"name": "a", "expression": "object.nothere == 1"}, {"name": "b", "expression": "false"}]),
            false,
        ),
        (json!([{"name": "a", "expression": "object.nothere == 1"}]), true),
        (json!([{"name": "a", "expression": "true"}]), true),
    ] {
        let mut spec = json!({"validations": [{"expression": "false"}]});
        spec.set(&["matchConditions"], conditions.clone());
        let world = World::new(&spec, &json!({}));
        let outcome = world.admit(&create(), &json!({})).await;
        assert_eq!(outcome.is_err(), applies, "{conditions:?}");
    }
}

/// The expression visits each pair of a list's elements, for each element.
#[tokio::test]
async fn expensive_expressions_end_at_the_cost_limit() {
    let cubic = "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c >= 0)))";
    let world = World::new(&json!({"validations": [{"expression": cubic}]}), &json!({}));
    let mut object = json!({});
    object.set(&["l"], (0..10_000).collect::<Vec<i64>>());
    let refused = message(world.admit(&create(), &object).await);
    assert!(refused.contains("actual cost limit exceeded"), "{refused}");
    // Beyond the budget of the first attempt but within upstream's, the evaluation is repeated to its end.
    object.set(&["l"], (0..20).collect::<Vec<i64>>());
    assert_eq!(message(world.admit(&create(), &object).await), "");
}

#[test]
fn compile_errors_name_the_field() {
    let errors = compile_errors(&policy(&json!({
        "variables": [{"name": "a", "expression": "1 +"}],
        "validations": [{"expression": "object.x == 1 && request.nothere == ''"}, {"expression": "1", "messageExpression": "authorizer.path('/')"}]
    })));
    let found: Vec<_> = errors
        .iter()
        .map(|(at, _, why)| (at.as_str(), why.lines().next().unwrap()))
        .collect();
    assert_eq!(found[0].0, "variables[0].expression");
    assert!(found[1].1.contains("undefined field 'nothere'"), "{found:?}");
    assert_eq!(
        found[2],
        ("validations[1].expression", "must evaluate to bool but got int")
    );
    assert_eq!(found[3].0, "validations[1].messageExpression");
}

#[test]
fn equal_expressions_share_a_program() {
    let of = |edits: Value| {
        ValidatingPolicy::parse(&policy(&edits))
            .validations
            .remove(0)
            .expression
    };
    let one = of(json!({"validations": [{"expression": "object.shared == 7"}]}));
    assert!(one.shares_program(&of(json!({"validations": [{"expression": "object.shared == 7"}]}))));
    let params = of(
        json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "object.shared == 7"}]}),
    );
    assert!(!one.shares_program(&params));
}

/// A chain of variables is as deep as an author likes; a recursion as deep would overflow the stack.
#[tokio::test]
async fn long_chains_of_variables_do_not_overflow_the_stack() {
    const LAST: usize = 19_999;
    let link = |i: usize| {
        let before = i.saturating_sub(1);
        let text = format!("has(variables.v{before}) ? variables.v{before} + 1 : 0");
        json!({"name": format!("v{i}"), "expression": if i == 0 { "1" } else { &text }})
    };
    let variables: Vec<Value> = (0..=LAST).map(link).collect();
    let check = json!({"expression": format!("variables.v{LAST} == {LAST}"),
        "messageExpression": format!("'is ' + string(variables.v{LAST})")});
    let world = World::new(&json!({"variables": variables, "validations": [check]}), &json!({}));
    let refused = message(world.admit(&create(), &json!({})).await);
    assert!(refused.ends_with("denied request: is 20000"), "{refused}");
}
