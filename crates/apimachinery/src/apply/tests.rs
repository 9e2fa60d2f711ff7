//! Complexity tests: requests built to be expensive must not take quadratic time. Each took minutes before
//! its fix.

use super::changes::MAX_SHAPES;
use super::managed::tests::{Toy, writer};
use super::*;
use crate::json;
use std::cell::Cell;
use std::sync::mpsc;
use std::time::Duration;

fn is_done_soon(work: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    wait.recv_timeout(Duration::from_secs(60))
        .expect("the work finishes without quadratic cost");
}

fn apply_and_update(live: &Value, config: &Value, versions: &dyn Versions<Toy>) {
    let reset = FieldSet::of_fields(&[&["status"]]);
    let request = ApplyRequest {
        writer: writer("m", "2026-01-01T00:00:00Z"),
        force: true,
        reset: &reset,
    };
    let applied = apply_across(Toy::Object, Some(live), config, &request, versions).unwrap();
    let mut new = applied.object.clone();
    new.set(&["spec", "changed"], "yes");
    update_managed_fields_across(
        Toy::Object,
        Some(&applied.object),
        &mut new,
        &request.writer,
        &reset,
        versions,
    );
}

fn entry(manager: usize, operation: &str, api_version: &str, fields: Value) -> Value {
    json!({"manager": (format!("m{manager}")), "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
}

fn managed(entries: Vec<Value>) -> Value {
    let mut live = json!({"metadata": {}, "spec": {"x": 1}, "status": {}});
    live.set(&["metadata", "managedFields"], entries);
    live
}

#[test]
fn long_unsorted_sets_are_not_quadratic() {
    is_done_soon(|| {
        let items: Vec<Value> = (0..100_000)
            .rev()
            .map(|i| Value::from(format!("item-{i:06}")))
            .collect();
        let mut config = Value::object();
        config.set(&["metadata", "finalizers"], items);
        apply_and_update(&managed(vec![]), &config, &OneShape);
    });
}

#[test]
fn large_unsorted_managed_fields_are_not_quadratic() {
    is_done_soon(|| {
        // Sorted as text rather than as numbers, and each element in two spellings.
        let elements = (0..60_000).flat_map(|i| [format!("v:{i}"), format!("v:{i}.0")]);
        let fields: Value = Value::Object(elements.map(|e| (e, Value::object())).collect());
        let live = managed(vec![entry(0, "Apply", "v1", json!({"f:spec": {"f:set": fields}}))]);
        apply_and_update(&live, &json!({"spec": {"x": 2}}), &OneShape);
        // One element in many spellings, each with different children.
        let ways = (0..2_000).map(|n| {
            let below = Value::Object(
                (0..50)
                    .map(|i| (format!("f:{}", 100_000 - n * 50 - i), Value::object()))
                    .collect(),
            );
            (format!("v:1.{}", "0".repeat(n)), below)
        });
        let fields: Value = Value::Object(ways.collect());
        let live = managed(vec![entry(0, "Apply", "v1", json!({"f:spec": {"f:set": fields}}))]);
        apply_and_update(&live, &json!({"spec": {"x": 2}}), &OneShape);
    });
}

#[test]
fn many_managers_are_not_quadratic() {
    for (operation, versions) in [("Apply", 1), ("Update", 1), ("Apply", 20_000), ("Update", 20_000)] {
        is_done_soon(move || {
            let entries = (0..20_000).map(|i| {
                let fields: Value = Value::Object([(format!("f:x{i}"), Value::object())].into_iter().collect());
                entry(
                    i,
                    operation,
                    &format!("v1alpha{}", i % versions),
                    json!({"f:spec": fields}),
                )
            });
            let live = managed(entries.collect());
            let mut config = json!({"spec": {"x": 2}});
            for i in 0..5_000 {
                config.set(&["spec", &format!("y{i}")], "z");
            }
            apply_and_update(&live, &config, &OneShape);
        });
    }
}

/// Versions of two shapes; counts conversions.
struct Counted(Cell<usize>);

impl Versions<Toy> for Counted {
    fn at(&self, object: &Value, _: &str) -> AtVersion<Toy> {
        self.0.set(self.0.get() + 1);
        AtVersion::Converted(object.clone(), Toy::Object)
    }
    fn shape(&self, api_version: &str) -> Option<usize> {
        Some(usize::from(api_version != "v1"))
    }
}

#[test]
fn objects_are_converted_once_per_shape() {
    let versions = Counted(Cell::new(0));
    let entries = (0..100).map(|i| entry(i, "Apply", &format!("v1alpha{i}"), json!({"f:spec": {"f:x": {}}})));
    let last = entry(0, "Apply", "v1alpha7", json!({"f:spec": {"f:gone": {}}}));
    let live = managed(entries.chain([last]).collect());
    apply_and_update(&live, &json!({"spec": {"x": 2}}), &versions);
    assert!(versions.0.get() <= 20, "{} conversions", versions.0.get());
}

/// Versions of which each has a shape of its own; counts attempts to convert.
struct Distinct {
    converts: bool,
    attempts: Cell<usize>,
}

impl Versions<Toy> for Distinct {
    fn at(&self, object: &Value, _: &str) -> AtVersion<Toy> {
        self.attempts.set(self.attempts.get() + 1);
        match self.converts {
            true => AtVersion::Converted(object.clone(), Toy::Object),
            false => AtVersion::Same,
        }
    }
    fn shape(&self, api_version: &str) -> Option<usize> {
        api_version.strip_prefix('v')?.parse().ok()
    }
}

#[test]
fn conversions_are_bounded_and_failed_ones_are_not_repeated() {
    for (versions, converts, most) in [
        (1_000, true, 8 * MAX_SHAPES),
        (1_000, false, 8 * MAX_SHAPES),
        (1, false, 20),
    ] {
        let of = Distinct {
            converts,
            attempts: Cell::new(0),
        };
        let fields = json!({"f:spec": {"f:x": {}}});
        let entries = (0..1_000).map(|i| entry(i, "Apply", &format!("v{}", 2 + i % versions), fields.clone()));
        let mut last = entry(0, "Apply", "v1", json!({"f:spec": {"f:gone": {}}}));
        last.set(&["manager"], "m");
        let live = managed(entries.chain([last]).collect());
        apply_and_update(&live, &json!({"spec": {"x": 2}}), &of);
        let attempts = of.attempts.get();
        assert!(0 < attempts && attempts <= most, "{attempts} conversions");
    }
}

#[test]
fn error_messages_are_bounded() {
    let name = "n".repeat(100_000);
    let mut item = json!({"name": name});
    for i in 0..1_000 {
        item.set(&[&format!("f{i}")], json!({"a": 1}));
    }
    let mut config = Value::object();
    config.set(&["spec", "items"], vec![item.clone()]);
    let request = ApplyRequest {
        writer: writer("m", "2026-01-01T00:00:00Z"),
        force: false,
        reset: &FieldSet::new(),
    };
    let refused = apply(Toy::Object, None, &config, &request).unwrap_err();
    assert!(refused.message.len() < 2 << 20, "{}", refused.message.len());
    // Conflicts are bounded as well, when another manager owns all fields.
    for i in 0..1_000 {
        item.set(&[&format!("f{i}")], "1");
    }
    config.set(&["spec", "items"], vec![item.clone()]);
    let live = apply(Toy::Object, None, &config, &request).unwrap().object;
    for i in 0..1_000 {
        item.set(&[&format!("f{i}")], "2");
    }
    config.set(&["spec", "items"], vec![item]);
    let other = ApplyRequest {
        writer: writer("n", "2026-01-01T00:00:00Z"),
        ..request
    };
    let conflict = apply(Toy::Object, Some(&live), &config, &other).unwrap_err();
    assert_eq!(conflict.code, 409);
    assert!(conflict.message.len() < 2 << 20, "{}", conflict.message.len());
}
