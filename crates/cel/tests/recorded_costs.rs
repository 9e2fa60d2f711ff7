//! Estimated costs, actual costs and results of expressions in kube-apiserver. Each line of
//! `recorded_costs.tsv` has an expression over `self`, the estimate, the cost, and the result; each stands for a cause
//! of differences that a comparison with cel-go found. `claims.tsv` is about the messages of errors: each
//! line has an expression over `claims`, a map of anything, and its result or why there is none.

use std::sync::Arc;
use torana_apimachinery::json;
use torana_cel::{Environment, Fail, Field, ObjectType, Schema, Type, Val, Variable};

fn object(fields: Vec<(&str, Schema)>) -> Schema {
    let field = |(name, schema): (&str, Schema)| Field {
        name: name.into(),
        key: name.into(),
        schema,
    };
    Schema::object(Arc::new(ObjectType::new(
        "self",
        fields.into_iter().map(field).collect(),
    )))
}

fn environment() -> Environment {
    let text = |max| Schema::scalar(Type::String, max);
    let int = || Schema::scalar(Type::Int, 0);
    let mut env = Environment::default();
    let fields = vec![
        ("name", text(40)),
        ("absent", text(3_145_726)),
        ("n", int()),
        ("ints", Schema::list(int(), 5)),
        ("tags", Schema::list(text(32), 6)),
        ("labels", Schema::map(text(48), 4)),
        ("spec", object(vec![("replicas", int())])),
    ];
    env.declare("self", object(fields));
    env
}

fn shown(v: &Val<'_>) -> String {
    match v {
        Val::Optional(None) => "none".to_owned(),
        Val::Optional(Some(v)) => format!("some({})", shown(v)),
        v => torana_apimachinery::codec::json::to_string(&v.to_tree().expect("it is printable")),
    }
}

#[test]
fn estimates_costs_and_results_are_those_of_kube_apiserver() {
    let env = environment();
    let tree = json!({"name": "web", "n": 3, "ints": [3, 1, 2], "tags": ["a", "b", "cc"], "labels": {"app": "web"},
        "spec": {"replicas": 2}});
    for line in include_str!("recorded_costs.tsv").lines() {
        let [source, estimate, cost, result] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("four fields: {line}")
        };
        let program = env.compile(source).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(program.estimated_cost().to_string(), estimate, "estimate of {source}");
        let value = Val::of(&tree, env.variable("self").expect("declared")).expect("of the type");
        let outcome = program.evaluate(&[Variable { name: "self", value }], 1_000_000);
        let found = match &outcome.value {
            Ok(v) => shown(v),
            Err(Fail::Error(why)) => format!("error: {why}"),
            Err(Fail::Cost) => "cost".to_owned(),
        };
        assert_eq!((&*found, outcome.cost.to_string().as_str()), (result, cost), "{source}");
    }
}

#[test]
fn messages_about_values_of_any_type_match_kube_apiserver() {
    let schema = Schema::map(Schema::json(), u64::MAX);
    let mut env = Environment::default();
    env.declare("claims", schema.clone());
    let claims = json!({"sub": "jane", "n": 3.0, "f": 2.5, "groups": ["a"], "one": "s", "nul": null, "m": {"a": 1.0},
        "a.b": "dotted"});
    for line in include_str!("claims.tsv").lines() {
        let (source, result) = line.split_once('\t').expect("two fields");
        let found = match env.compile(source) {
            Err(e) => format!("compilation failed: {e}"),
            Ok(program) => {
                let value = Val::of(&claims, &schema).expect("of the type");
                match program.evaluate(&[Variable { name: "claims", value }], 1_000_000).value {
                    Ok(v) => shown(&v),
                    Err(Fail::Error(why)) => format!("error: {why}"),
                    Err(Fail::Cost) => "cost".to_owned(),
                }
            }
        };
        let wanted = torana_apimachinery::codec::json::decode(result.as_bytes()).expect("a JSON string");
        assert_eq!(Some(found.as_str()), wanted.as_str(), "{source}");
    }
}

#[test]
fn rejections_match_kube_apiserver() {
    for (source, why) in [
        (
            "self.ints.existsOne(i, true)",
            "1:20: undeclared reference to 'existsOne' (in container '')",
        ),
        ("dyn == 1", "1:1: undeclared reference to 'dyn' (in container '')"),
        ("has(self.none)", "1:4: undefined field 'none'"),
        (
            "[1, 2u, 'a'].size() == {'a': 1, 2: 2, 3u: 3}.size()",
            "1:5: expected type 'int' but found 'uint'",
        ),
        (
            "{'a': 1, 2: 2, 3u: 3}.size() > 0",
            "1:16: expected type 'string' but found 'uint'",
        ),
        ("dyn(self)[null]", "invalid qualifier type: types.Null"),
        ("string(null)", "no such overload: string(null_type)"),
        (
            "[self.ints].sortBy(x, x)",
            "found no matching overload for '@sortByAssociatedKeys' applied to 'list(list(int)).(list(list(int)))'",
        ),
    ] {
        let refused = environment().compile(source).expect_err(source).to_string();
        assert!(refused.contains(why), "{source}: {refused}");
    }
}

/// Each line has an expression and its errors. `OPERAND` stands for the list of tokens that can start an
/// operand.
#[test]
fn syntax_errors_are_those_of_cel_go() {
    const OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    for line in include_str!("syntax.tsv").lines() {
        let (source, wanted) = line.split_once('\t').expect("two fields");
        let refused = environment().compile(source).expect_err(source).to_string();
        let errors = refused.lines().filter_map(|l| l.strip_prefix("ERROR: <input>:"));
        let found = errors.collect::<Vec<_>>().join(" | ").replace(OPERAND, "OPERAND");
        assert_eq!(found, wanted, "{source}");
    }
}
