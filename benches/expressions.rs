//! The cost of CEL in use: the complete validation of a custom object, and a write that no policy matches.
//! Run with `cargo bench --bench expressions`; for the language alone,
//! `cargo bench -p torana-cel`. Times are the minimum over many batches, because noise only adds.

use std::hint::black_box;
use std::time::{Duration, Instant};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::json;
use torana::testing::policies::Policies;
use torana::testing::schema::StructuralSchema;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ten typical rules, one a line.
const RULES: &str = include_str!("../crates/cel/benches/rules.txt");

/// A schema with the keywords that definitions have, and the rules on `spec`.
fn schema() -> StructuralSchema {
    let rules: Vec<Value> = RULES.lines().map(|r| json!({"rule": (r)})).collect();
    let mut schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "required": ["name", "mode", "replicas", "containers"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9-]+$"},
            "mode": {"type": "string", "enum": ["Always", "Never", "OnFailure"]},
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000},
            "minReplicas": {"type": "integer", "minimum": 0},
            "maxReplicas": {"type": "integer", "minimum": 1},
            "labels": {"type": "object", "maxProperties": 50, "additionalProperties": {"type": "string", "maxLength": 63}},
            "containers": {"type": "array", "minItems": 1, "maxItems": 50, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {
                    "type": "object", "required": ["name", "image"], "properties": {
                        "name": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
                        "image": {"type": "string", "minLength": 1, "maxLength": 400},
                        "description": {"type": "string", "maxLength": 2000},
                        "weight": {"type": "integer", "minimum": 0, "maximum": 100},
                        "privileged": {"type": "boolean"}}}}}}}});
    schema.set(&["properties", "spec", "x-kubernetes-validations"], rules);
    StructuralSchema::parse(&schema).expect("a valid schema")
}

/// An object of about 20 KB: 16 containers with a long description each, and 16 labels.
fn object() -> Value {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "App", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"name": "web-frontend", "mode": "Always", "replicas": 16, "minReplicas": 1, "maxReplicas": 20}});
    let container = |i: usize| {
        let name = match i {
            15 => "main".to_owned(),
            _ => format!("sidecar-{i}"),
        };
        let image = format!("registry.example/images/app-{i}:v1.2.{i}");
        json!({"name": name, "image": image, "weight": 1, "privileged": false, "description": "x".repeat(1150)})
    };
    object.set(&["spec", "containers"], (0..16).map(container).collect::<Vec<_>>());
    for i in 0..16 {
        object.set(&["spec", "labels", &format!("example.com/label-{i}")], "value");
    }
    object
}

/// 100 policies whose constraints are these.
fn policies(constraints: &Value) -> Policies {
    let policy = |i: usize| {
        let mut policy = json!({"metadata": {"name": format!("policy-{i}")},
            "spec": {"failurePolicy": "Fail", "validations": [{"expression": "object.metadata.name != 'x'"}]}});
        policy.set(&["spec", "matchConstraints"], constraints.clone());
        policy
    };
    Policies::new(&(0..100).map(policy).collect::<Vec<_>>())
}

/// The minimum time of one call.
fn measure(name: &str, goal: Duration, mut work: impl FnMut()) {
    let mut best = Duration::MAX;
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        let since = Instant::now();
        for _ in 0..20 {
            work();
        }
        best = best.min(since.elapsed() / 20);
    }
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    println!("{name:60} {:8.2} µs   goal {:6.1} µs", us(best), us(goal));
}

fn main() {
    let (schema, object) = (schema(), object());
    let validate = || {
        let mut errors = schema.validate(&object, None);
        errors.extend(schema.validate_rules(&object, None, &errors));
        errors
    };
    let errors = validate();
    assert!(errors.is_empty(), "{errors:?}");
    println!("a custom object of {} bytes", json::to_vec(&object).len());
    measure(
        "custom object: schema and ten rules",
        Duration::from_micros(300),
        || {
            black_box(validate());
        },
    );

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let write = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default",
        "labels": {"app": "web", "tier": "front"}}, "data": {"a": "1"}});
    let rule = |resource: &str, operation: &str| json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
    for (name, constraints) in [
        ("for another resource", json!({"resourceRules": [rule("pods", "*")]})),
        (
            "for another operation",
            json!({"resourceRules": [rule("configmaps", "DELETE")]}),
        ),
        (
            "for other labels",
            json!({"resourceRules": [rule("configmaps", "*")], "objectSelector": {"matchLabels": {"app": "db"}}}),
        ),
    ] {
        let policies = policies(&constraints);
        runtime.block_on(async {
            policies.admit(&write).await.expect("no policy concerns it");
        });
        let name = format!("a write and 100 policies {name}");
        measure(&name, Duration::from_micros(2), || {
            runtime
                .block_on(policies.admit(black_box(&write)))
                .expect("no policy concerns it");
        });
    }
}
