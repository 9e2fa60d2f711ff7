//! Bodies for CEL: source text, and evaluation.

use torana_apimachinery::json;
use torana_cel::{Environment, Fail, Field, ObjectType, Schema, Type, Val, Variable};

fn environment() -> Environment {
    let field = |name: &str, schema| Field {
        name: name.into(),
        key: name.into(),
        schema,
    };
    let text = || Schema::scalar(Type::String, 40);
    let of = ObjectType::new(
        "self",
        vec![
            field("name", text()),
            field("n", Schema::scalar(Type::Int, 0)),
            field("tags", Schema::list(text(), 10)),
            field("labels", Schema::map(text(), 10)),
        ],
    );
    let mut env = Environment::default();
    env.declare("self", Schema::object(of.into()));
    env.declare("any", Schema::any());
    env.allow_construction();
    env
}

/// No source text is too deep or too large to be refused or compiled. An expression that compiles
/// ends within its limit, with the same result and cost each time, or with the error that the limit is exceeded.
pub(crate) fn expression(data: &[u8]) {
    const LIMIT: u64 = 100_000;
    let Ok(source) = std::str::from_utf8(data) else { return };
    let env = environment();
    let program = match env.compile(source) {
        Ok(program) => program,
        Err(issues) => {
            assert!(!issues.to_string().is_empty());
            return;
        }
    };
    let tree = json!({"name": "web", "n": 3, "tags": ["a", "b"], "labels": {"k": "v"}, "x": [{"y": null, "z": 1.5}]});
    let value = |name| Variable {
        name,
        value: Val::of(&tree, env.variable(name).expect("declared")).expect("of the type"),
    };
    let variables = [value("self"), value("any")];
    let first = program.evaluate(&variables, LIMIT);
    let again = program.evaluate(&variables, LIMIT);
    assert_eq!(first.cost, again.cost);
    assert_eq!(format!("{:?}", first.value), format!("{:?}", again.value));
    assert_eq!(matches!(first.value, Err(Fail::Cost)), first.cost > LIMIT);
    let less = first.cost / 2;
    let limited = program.evaluate(&variables, less);
    assert_eq!(
        matches!(limited.value, Err(Fail::Cost)),
        first.cost > less || limited.cost > less
    );
}
