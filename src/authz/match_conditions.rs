//! [`MatchConditions`]: the match conditions of an authorization webhook, CEL expressions over the review
//! that would be sent (upstream: `apiserver/pkg/authorization/cel`).

use super::{Attributes, review};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::json;
use crate::tasks::compute;
use std::collections::BTreeSet;
use std::sync::Arc;
use torana_cel::{Budget, Environment, Exceeded, Program, Schema, Type, Unusable, Val, Variable};

// Upstream's limit (`apis/apiserver/validation`).
const MAX_CONDITIONS: usize = 64;
/// Estimated allocations of an evaluation, whose cost bounds the sizes of its values.
const MEMORY: usize = 16 << 20;

/// Conditions that must all hold for the webhook to be asked.
#[derive(Debug)]
pub(crate) struct MatchConditions {
    all: Vec<(String, Program)>,
    request: Schema,
}

/// The result of evaluating conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConditionResult {
    /// Whether all conditions hold. One that is false outweighs the errors of others.
    pub applies: Result<bool, ConditionError>,
    /// True if a condition could not be evaluated.
    pub failed: bool,
}

const BUSY: ConditionResult = ConditionResult {
    applies: Err(ConditionError::Busy),
    failed: true,
};

/// Why conditions could not be evaluated to a result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConditionError {
    /// The compute pool is full.
    #[error("the server is too busy to evaluate match conditions")]
    Busy,
    /// Some failed to evaluate and none is false. Worded as by upstream's `CELMatcher`.
    #[error("{0}")]
    Failed(String),
}

/// Why an expression is not a valid condition. Messages as upstream words them.
#[derive(Debug, thiserror::Error)]
enum InvalidCondition {
    #[error(transparent)]
    Unusable(Unusable),
    #[error("must evaluate to bool but got {0}")]
    NotBool(String),
}

/// Compares the source of the expressions: compiled from equal text in the same environment, programs are
/// equal.
impl PartialEq for MatchConditions {
    fn eq(&self, other: &Self) -> bool {
        self.all
            .iter()
            .map(|(text, _)| text)
            .eq(other.all.iter().map(|(text, _)| text))
    }
}

impl Eq for MatchConditions {}

/// The variable `request`: a SubjectAccessReviewSpec.
fn request() -> Schema {
    let text = || Schema::scalar(Type::String, u64::MAX);
    let texts = || Schema::list(text(), u64::MAX);
    let requirement = || {
        let fields = vec![("key", text()), ("operator", text()), ("values", texts())];
        Schema::record("kubernetes.SelectorRequirement", fields)
    };
    let selector = |name: &str| {
        let requirements = Schema::list(requirement(), u64::MAX);
        Schema::record(name, vec![("rawSelector", text()), ("requirements", requirements)])
    };
    let mut resource: Vec<_> = RESOURCE.iter().map(|name| (*name, text())).collect();
    resource.push(("fieldSelector", selector("kubernetes.FieldSelectorAttributes")));
    resource.push(("labelSelector", selector("kubernetes.LabelSelectorAttributes")));
    let path = vec![("path", text()), ("verb", text())];
    let fields = vec![
        (
            "resourceAttributes",
            Schema::record("kubernetes.ResourceAttributes", resource),
        ),
        (
            "nonResourceAttributes",
            Schema::record("kubernetes.NonResourceAttributes", path),
        ),
        ("user", text()),
        ("groups", texts()),
        ("extra", Schema::map(texts(), u64::MAX)),
        ("uid", text()),
    ];
    Schema::record("kubernetes.SubjectAccessReviewSpec", fields)
}

const RESOURCE: [&str; 7] = [
    "namespace",
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "name",
];

/// The value of `request`. Expressions see every member, also those that the review leaves out because they
/// are empty.
fn subject(attributes: &Attributes<'_>) -> Value {
    let mut spec = review::spec(attributes, "groups");
    let mut complete = |path: &[&str], empty: Value| {
        // A review omits empty members, but a typed CEL object has them all: without this, `request.uid ==
        // ''` would fail with `no such key`.
        if spec.at(path).is_null() {
            spec.set(path, empty);
        }
    };
    complete(&["user"], "".into());
    complete(&["uid"], "".into());
    complete(&["groups"], json!([]));
    complete(&["extra"], json!({}));
    match attributes.is_resource {
        true => RESOURCE
            .iter()
            .for_each(|name| complete(&["resourceAttributes", name], "".into())),
        false => ["path", "verb"]
            .iter()
            .for_each(|name| complete(&["nonResourceAttributes", name], "".into())),
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let requirements = spec.at_mut(&["resourceAttributes", selector, "requirements"]);
        for requirement in requirements.and_then(Value::as_array_mut).into_iter().flatten() {
            if requirement.get("values").is_null() {
                requirement.set(&["values"], json!([]));
            }
        }
    }
    spec
}

impl MatchConditions {
    /// Compiles the `matchConditions` of a webhook; `None` if there are none, or an error was added.
    pub(crate) fn parse(list: &Value, at: &FieldPath, errors: &mut ErrorList) -> Option<Self> {
        let list = list.items();
        if list.len() > MAX_CONDITIONS {
            errors.push(FieldError::too_many(at, list.len(), MAX_CONDITIONS));
            return None;
        }
        let mut environment = Environment::default();
        let request = request();
        environment.declare("request", request.clone());
        let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
        for (i, condition) in list.iter().enumerate() {
            let at = at.index(i).child("expression");
            let text = condition.str_at(&["expression"]);
            if text.trim().is_empty() {
                errors.push(FieldError::required(&at, ""));
            } else if !seen.insert(text) {
                errors.push(FieldError::duplicate(&at, text));
            } else {
                match compile(&environment, text) {
                    Ok(program) => all.push((text.to_owned(), program)),
                    Err(e) => errors.push(FieldError::invalid(&at, text, e.to_string())),
                }
            }
        }
        (!all.is_empty()).then_some(Self { all, request })
    }

    /// Evaluates the conditions for a request.
    pub(super) async fn evaluate(self: &Arc<Self>, attributes: &Attributes<'_>) -> ConditionResult {
        let Ok(subject) = review::build(attributes, subject).await else {
            return BUSY;
        };
        // Nearly all conditions fit into the quick budget; moving each request to another thread would cost
        // more than evaluating them.
        if !review::is_long(attributes)
            && let Some(result) = self.attempt(&subject, Budget::quick())
        {
            return result;
        }
        let me = self.clone();
        let result = compute::offload(MEMORY, async move { me.attempt(&subject, Budget::full()) }).await;
        result.ok().flatten().unwrap_or(BUSY)
    }

    /// Evaluates within a budget; `None` if it does not suffice.
    fn attempt(&self, subject: &Value, mut budget: Budget) -> Option<ConditionResult> {
        let mut errors: Vec<String> = Vec::new();
        for (text, program) in &self.all {
            let request = Val::of(subject, &self.request).map_err(Exceeded::Failed);
            let value = request.and_then(|value| {
                let request = [Variable { name: "request", value }];
                budget.evaluate(program, &request)
            });
            match value {
                Ok(Val::Bool(true)) => {}
                // Conditions are compiled to return a boolean, so this is `false`. It ends the evaluation: no
                // later result can outweigh it.
                Ok(_) => {
                    return Some(ConditionResult {
                        applies: Ok(false),
                        failed: !errors.is_empty(),
                    });
                }
                Err(Exceeded::Costly) => return None,
                Err(Exceeded::Failed(why)) => {
                    let why = format!("cel evaluation error: expression '{text}' resulted in error: {why}");
                    errors.push(why);
                }
            }
        }
        Some(ConditionResult {
            failed: !errors.is_empty(),
            applies: match errors.as_slice() {
                [] => Ok(true),
                [one] => Err(ConditionError::Failed(one.clone())),
                // No deduplication as in upstream's aggregate is needed: each message quotes its expression,
                // and those are distinct.
                all => Err(ConditionError::Failed(format!("[{}]", all.join(", ")))),
            },
        })
    }
}

fn compile(environment: &Environment, text: &str) -> Result<Program, InvalidCondition> {
    let compiled = environment.compile_typed(text, |of| *of == Type::Bool);
    compiled.map_err(|why| match why {
        Unusable::Type(of) => InvalidCondition::NotBool(of.full_name().to_string()),
        other => InvalidCondition::Unusable(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::request::{RequestInfo, UserInfo};

    fn parse(expressions: &[&str]) -> Result<Arc<MatchConditions>, String> {
        let list: Vec<Value> = expressions.iter().map(|e| json!({"expression": (*e)})).collect();
        let mut errors = ErrorList::new();
        let parsed = MatchConditions::parse(&list.into(), &FieldPath::new("matchConditions"), &mut errors);
        match errors.is_empty() {
            true => Ok(Arc::new(parsed.unwrap())),
            false => Err(aggregate(&errors)),
        }
    }

    async fn evaluate(expressions: &[&str], uri: &str) -> Result<bool, String> {
        let info = RequestInfo::resolve(&http::Method::GET, &uri.parse().unwrap()).unwrap();
        let user = UserInfo::system("jane", &["dev"]);
        let conditions = parse(expressions).unwrap();
        let result = conditions.evaluate(&Attributes::of(&user, &info)).await;
        result.applies.map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn conditions_see_the_review_with_its_empty_members() {
        let uri = "/api/v1/namespaces/n/pods?labelSelector=x%20in%20(a,b),y";
        for (expression, holds) in [
            (
                "request.user == 'jane' && request.groups.exists(g, g == 'dev') && request.uid == ''",
                true,
            ),
            (
                "request.resourceAttributes.namespace == 'n' && request.resourceAttributes.subresource == ''",
                true,
            ),
            ("has(request.nonResourceAttributes)", false),
            (
                "request.resourceAttributes.labelSelector.requirements[0].values == ['a', 'b']",
                true,
            ),
            ("has(request.resourceAttributes.fieldSelector)", false),
            (
                "request.resourceAttributes.labelSelector.requirements.exists(r, r.operator == 'Exists' && r.values == [])",
                true,
            ),
        ] {
            assert_eq!(evaluate(&[expression], uri).await, Ok(holds), "{expression}");
        }
        assert_eq!(
            evaluate(&["request.nonResourceAttributes.path == '/x'"], "/x").await,
            Ok(true)
        );
    }

    #[tokio::test]
    async fn a_condition_that_is_false_outweighs_errors() {
        let failing = "request.resourceAttributes.namespace == 'n'";
        assert_eq!(evaluate(&[failing, "false"], "/healthz").await, Ok(false));
        assert_eq!(
            evaluate(&["true", failing], "/healthz").await,
            Err(format!(
                "cel evaluation error: expression '{failing}' resulted in error: no such key: resourceAttributes"
            ))
        );
    }

    #[tokio::test]
    async fn expensive_conditions_end_at_the_limit_of_their_cost() {
        let cubic = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, a + b + c > 0)))";
        assert_eq!(evaluate(&[cubic], "/x").await, Ok(true));
        let deeper = format!("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0) && {cubic})");
        let refused = evaluate(&[&deeper], "/x").await.unwrap_err();
        assert!(refused.ends_with("actual cost limit exceeded"), "{refused}");
    }

    #[test]
    fn compile_errors_have_upstreams_messages() {
        let message = parse(&["1", "true", "true", " ", "request.nothere"]).unwrap_err();
        for part in [
            "matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
            "matchConditions[2].expression: Duplicate value: \"true\"",
            "matchConditions[3].expression: Required value",
            "matchConditions[4].expression: Invalid value: \"request.nothere\": compilation failed: ERROR: <input>:1:8: \
             undefined field 'nothere'",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
