//! Results of expressions in the environments of admission policies: each line of `admission.tsv` has an
//! expression, its cost and its outcome in kube-apiserver; each stands for a cause of differences that a
//! comparison with cel-go found.

use torana_apimachinery::codec::json::to_string;
use torana_apimachinery::json;
use torana_cel::{Authorizer, Check, Decision, Environment, Fail, Schema, Type, Val, Variable};

struct Nobody;

impl Authorizer for Nobody {
    fn authorize(&self, _: &Check) -> Decision {
        Decision::default()
    }
}

/// That of a mutating policy.
fn environment() -> Environment {
    let mut env = Environment::default();
    env.declare("object", Schema::any());
    env.declare("authorizer", Schema::scalar(Type::AUTHORIZER, 0));
    env.declare("authorizer.requestResource", Schema::scalar(Type::RESOURCE_CHECK, 0));
    env.allow_construction();
    env
}

#[test]
fn costs_and_outcomes_are_those_of_kube_apiserver() {
    let (env, any) = (environment(), Schema::any());
    let object = json!({"spec": {"n": 3, "list": ["b", "a", "b"]}});
    for line in include_str!("admission.tsv").lines() {
        let [source, cost, wanted] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three fields: {line}")
        };
        let (cost_found, found) = match env.compile(source) {
            Err(issues) => {
                let text = issues.to_string();
                let first = text.lines().next().unwrap_or_default();
                let first = first.strip_prefix("ERROR: <input>:").unwrap_or(first);
                (0, format!("refused: {first}"))
            }
            Ok(program) => {
                let variables = [
                    Variable {
                        name: "object",
                        value: Val::of(&object, &any).expect("any value"),
                    },
                    Variable {
                        name: "authorizer",
                        value: Val::authorizer(&Nobody),
                    },
                    Variable {
                        name: "authorizer.requestResource",
                        value: Val::resource_check(&Nobody, Check::default()),
                    },
                ];
                let outcome = program.evaluate(&variables, 1_000_000);
                let shown = match outcome.value {
                    Ok(value) => to_string(&value.to_tree().expect("it is printable")),
                    Err(Fail::Error(why)) => format!("error: {why}"),
                    Err(Fail::Cost) => "cost".to_owned(),
                };
                (outcome.cost, shown)
            }
        };
        assert_eq!((cost_found.to_string().as_str(), &*found), (cost, wanted), "{source}");
    }
}
