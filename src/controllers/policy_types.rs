//! Type checking of ValidatingAdmissionPolicies (`pkg/controller/validatingadmissionpolicystatus`): compiles
//! their expressions with the schemas of the kinds that they match, and writes the errors into their status.
//!
//! A policy is checked once per generation. The warnings do not affect its evaluation. `kinds` selects the kinds to
//! check against, `schemas` reads their types.

mod kinds;
mod schemas;

use super::loopback::{APPLY, Failure, Path, found};
use super::term::Term;
use crate::admission::expressions::TypeChecker;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::field::FieldPath;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::interrupt::checkpoint;
use crate::json;
use crate::storage::Entry;
use crate::tasks::off_thread;
use kinds::Gvk;
use schemas::{Schemas, Shape};
use std::sync::{Arc, LazyLock};

const QUEUE: &str = "validatingadmissionpolicy-status";
const GROUP: &str = "admissionregistration.k8s.io";
const RESOURCE: &str = "validatingadmissionpolicies";

static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.generation",
        "spec.{paramKind,matchConstraints,validations,variables}",
        "status.observedGeneration",
    ])
});

#[derive(Debug)]
struct Policy {
    generation: i64,
    observed: i64,
    parts: Arc<Value>,
}

impl Policy {
    fn from_entry(entry: &Entry) -> Self {
        let parts = entry.decode_parts(&PARTS);
        let number = |path: &[&str]| parts.at(path).as_i64().unwrap_or(0);
        Self {
            // Missing numbers count as 0, so a policy without a status is unchecked.
            generation: number(&["metadata", "generation"]),
            observed: number(&["status", "observedGeneration"]),
            parts: Arc::new(parts),
        }
    }

    fn is_unchecked(&self) -> bool {
        self.generation > self.observed
    }
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let policies = term.inform((GROUP, RESOURCE), Policy::from_entry, |policies| {
        policies.subscribe(move |change: &Change<'_, Policy>| {
            if change.new.is_some_and(|p| p.is_unchecked()) {
                changed.add(change.key.into());
            }
        });
    });
    let Some(policies) = policies else { return };
    let api = term.client("validatingadmissionpolicy-status-controller");
    let schemas = Arc::new(Schemas::new(api.clone()));
    // One worker, so that policies for the same kinds find their schemas read.
    term.process(QUEUE, &queue, 1, move |name: Str| {
        let (api, policies, schemas) = (api.clone(), policies.clone(), schemas.clone());
        async move {
            let Some(policy) = policies.get(&name).filter(|p| p.is_unchecked()) else {
                return Ok::<_, Failure>(());
            };
            let warnings = check(&schemas, &policy.parts).await?;
            let checked = match warnings.is_empty() {
                true => Value::object(),
                false => json!({"expressionWarnings": (warnings)}),
            };
            let patch: Value = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": (name.as_str())},
                "status": {"observedGeneration": (policy.generation), "typeChecking": (checked)}});
            let path = Path::of(GROUP, "v1", "", RESOURCE).name(&name).subresource("status");
            // Forced, as upstream: both fields are this loop's, whoever wrote them before.
            let path = format!("{path}?fieldManager={QUEUE}&force=true");
            found(api.patch(path, APPLY, patch).await).map(drop)
        }
    });
}

/// The warnings about the expressions of a policy.
async fn check(schemas: &Schemas, policy: &Arc<Value>) -> Result<Vec<Value>, Failure> {
    let served = schemas.served().await?;
    let rules = policy.clone();
    let kinds = off_thread(0, move || kinds::to_check(&rules, &served)).await;
    let kinds = kinds.ok_or_else(too_long)?;
    let params = kinds::of_params(policy);
    let wanted: Vec<Gvk> = kinds.iter().chain(&params).cloned().collect();
    let mut shapes = schemas.find(&wanted).await?;
    // Popped first, because `zip` below must pair kinds with their own shapes. Without a schema, parameters
    // may be anything.
    let params = params.map(|_| shapes.pop().flatten().unwrap_or_default());
    let objects: Vec<(Gvk, Shape)> = kinds
        .into_iter()
        .zip(shapes)
        .filter_map(|(k, s)| Some((k, s?)))
        .collect();
    let policy = policy.clone();
    let warnings = off_thread(0, move || warnings(&policy, &objects, params.as_ref())).await;
    warnings.ok_or_else(too_long)
}

fn too_long() -> Failure {
    Failure::unreadable("the types of the policy could not be checked in time")
}

/// Bytes of one issue, which quotes its expression, and of the warnings together: ten kinds may multiply a policy of a
/// megabyte, and its status has to fit into a request.
const MAX_ISSUE: usize = 4 << 10;
const MAX_TEXT: usize = 512 << 10;

fn warnings(policy: &Value, objects: &[(Gvk, Shape)], params: Option<&Shape>) -> Vec<Value> {
    let spec = policy.get("spec");
    let checkers: Vec<(&Gvk, TypeChecker)> = objects
        .iter()
        .map(|(kind, shape)| {
            let mut checker = TypeChecker::new(shape.schema(), params.map(Shape::schema));
            for v in spec.get("variables").items() {
                checkpoint();
                // In order: a variable may use those before it.
                checker.declare(v.str_at(&["name"]), v.str_at(&["expression"]));
            }
            (kind, checker)
        })
        .collect();
    let at = FieldPath::new("spec").child("validations");
    let (mut warnings, mut left) = (Vec::new(), MAX_TEXT);
    for (i, validation) in spec.get("validations").items().iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = validation.str_at(&[field]);
            // Optional, unlike `expression`, the lack of which is an issue.
            if expression.is_empty() && field == "messageExpression" {
                continue;
            }
            let issues = checkers.iter().filter_map(|(kind, checker)| {
                checkpoint();
                // Upstream's format, including the newline at the end and the one that joins them.
                let issue = checker.issues(expression)?;
                Some(format!("{kind}: {}\n", &issue[..issue.floor_char_boundary(MAX_ISSUE)]))
            });
            let issues: Vec<String> = issues.collect();
            if !issues.is_empty() {
                let text = issues.join("\n");
                let Some(rest) = left.checked_sub(text.len()) else {
                    return warnings;
                };
                left = rest;
                let at = at.index(i).child(field);
                warnings.push(json!({"fieldRef": (at.as_str()), "warning": (text)}));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_bounded_together_and_each() {
        let kind = Gvk::new("example.com", "v1", "A");
        let documents = json!({"components": {"schemas": {"a": {
            "type": "object", "properties": {"foo": {"type": "string"}},
            "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "A"}]}}}});
        let shape = schemas::declared(&documents, &kind).expect("it has a schema");
        let expression = format!("object.{}", "a".repeat(MAX_ISSUE));
        let validations = vec![json!({"expression": (expression)}); 1000];
        let policy = json!({"spec": {"validations": (validations)}});
        let found = warnings(&policy, &[(kind, shape)], None);
        let lengths: Vec<usize> = found.iter().map(|w| w.str_at(&["warning"]).len()).collect();
        assert!(lengths.iter().sum::<usize>() <= MAX_TEXT && found.len() > MAX_TEXT / MAX_ISSUE / 2);
        assert!(lengths.iter().all(|n| *n < MAX_ISSUE + 100), "{lengths:?}");
    }

    #[test]
    fn warnings_name_the_field_and_the_kind_of_each_issue() {
        let kind = |kind: &str| Gvk::new("example.com", "v1", kind);
        let documents = json!({"components": {"schemas": {
            "a": {"type": "object", "properties": {"foo": {"type": "string"}},
                "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "A"}]},
            "b": {"type": "object", "properties": {"foo": {"type": "integer"}},
                "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "B"}]}}}});
        let objects: Vec<(Gvk, Shape)> = ["A", "B"]
            .into_iter()
            .map(|k| {
                (
                    kind(k),
                    schemas::declared(&documents, &kind(k)).expect("it has a schema"),
                )
            })
            .collect();
        let policy = json!({"spec": {
            "variables": [{"name": "foo", "expression": "object.foo"}],
            "validations": [
                {"expression": "variables.foo == 'bar'"},
                {"expression": "has(object.foo)", "messageExpression": "object.bar"}]}});
        let found = warnings(&policy, &objects, None);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|w| (w.str_at(&["fieldRef"]), w.str_at(&["warning"])))
            .collect();
        let issue = "ERROR: <input>:1:7: undefined field 'bar'\n | object.bar\n | ......^\n";
        assert_eq!(
            found,
            [
                (
                    "spec.validations[0].expression",
                    "example.com/v1, Kind=B: ERROR: <input>:1:15: found no matching overload for '_==_' applied to \
                     '(int, string)'\n | variables.foo == 'bar'\n | ..............^\n"
                ),
                (
                    "spec.validations[1].messageExpression",
                    &*format!("example.com/v1, Kind=A: {issue}\nexample.com/v1, Kind=B: {issue}")
                ),
            ]
        );
    }
}
