//! Compilation of a typical rule, and evaluation of ten over an object of 20 KB. Run with
//! `cargo bench -p torana-cel`. Times are the minimum over many batches, because noise only adds.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana_apimachinery::{Value, json};
use torana_cel::{Environment, Field, ObjectType, Program, Schema, Type, Val, Variable};

/// Ten typical rules, one a line.
const RULES: &str = include_str!("rules.txt");

fn field(name: &str, schema: Schema) -> Field {
    Field {
        name: name.into(),
        key: name.into(),
        schema,
    }
}

fn schema() -> Schema {
    let text = || Schema::scalar(Type::String, 400);
    let int = || Schema::scalar(Type::Int, 0);
    let container = ObjectType::new(
        "container",
        vec![
            field("name", text()),
            field("image", text()),
            field("description", text()),
            field("weight", int()),
            field("privileged", Schema::scalar(Type::Bool, 0)),
        ],
    );
    let spec = ObjectType::new(
        "spec",
        vec![
            field("name", text()),
            field("mode", text()),
            field("replicas", int()),
            field("minReplicas", int()),
            field("maxReplicas", int()),
            field("labels", Schema::map(text(), 50)),
            field("containers", Schema::list(Schema::object(Arc::new(container)), 50)),
        ],
    );
    Schema::object(Arc::new(spec))
}

/// An object of about 20 KB: 16 containers with a long description each, and 16 labels.
fn object() -> Value {
    let containers: Vec<_> = (0..16)
        .map(|i| {
            let name = if i == 15 {
                "main".to_owned()
            } else {
                format!("sidecar-{i}")
            };
            (name, format!("registry.example/images/app-{i}:v1.2.{i}"))
        })
        .collect();
    let mut tree =
        json!({"name": "web-frontend", "mode": "Always", "replicas": 16, "minReplicas": 1, "maxReplicas": 20});
    let containers: Vec<Value> = containers
        .iter()
        .map(|(name, image)| {
            json!({"name": name, "image": image, "weight": 1, "privileged": false, "description": "x".repeat(1150)})
        })
        .collect();
    tree.set(&["containers"], Value::Array(containers));
    for i in 0..16 {
        tree.set(&["labels", &format!("example.com/label-{i}")], "value");
    }
    tree
}

fn best(mut work: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..300 {
        let start = Instant::now();
        for _ in 0..20 {
            work();
        }
        best = best.min(start.elapsed() / 20);
    }
    best
}

fn main() {
    let mut env = Environment::default();
    env.declare("self", schema());
    let programs: Vec<Program> = RULES.lines().map(|r| env.compile(r).expect("well typed")).collect();
    let tree = object();
    let of = env.variable("self").expect("declared");
    let run = |program: &Program| {
        let value = Val::of(&tree, of).expect("of the type");
        let outcome = program.evaluate(&[Variable { name: "self", value }], 1_000_000);
        outcome.value.map(|v| v.as_bool()).ok().flatten()
    };
    let typical = RULES.lines().nth(4).expect("there are ten");
    println!(
        "compile and check a rule: {:?}",
        best(|| drop(black_box(env.compile(black_box(typical)))))
    );
    let list = |depth| format!("size({}1{}) == 1", "[".repeat(depth), "]".repeat(depth));
    let nested = vec![list(240); 20].join(" || ");
    println!(
        "compile and check {} bytes of nested lists: {:?}",
        nested.len(),
        best(|| drop(black_box(env.compile(black_box(&nested)))))
    );
    for (rule, program) in RULES.lines().zip(&programs) {
        assert_eq!(run(program), Some(true), "{rule}");
        println!("{:>10?}  {rule}", best(|| _ = black_box(run(program))));
    }
    let all = best(|| programs.iter().for_each(|p| _ = black_box(run(p))));
    println!("evaluate the ten rules: {all:?}");
}
