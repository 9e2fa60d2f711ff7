use super::*;
use crate::apimachinery::field::aggregate;
use crate::json;

fn with(path: &[&str], value: Value) -> Value {
    let mut v =
        json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "D", "name": "d"}}});
    v.set(path, value);
    v
}

fn errors(path: &[&str], value: Value) -> String {
    aggregate(&autoscaler(&with(path, value)))
}

#[test]
fn target_needs_a_group_unless_replication_controller() {
    let at = ["spec", "scaleTargetRef"];
    assert_eq!(
        errors(&at, json!({"apiVersion": "v1", "kind": "D", "name": "d"})),
        "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"
    );
    assert_eq!(
        errors(&at, json!({"apiVersion": "a/b/c", "kind": "D", "name": "d"})),
        "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
    );
    assert_eq!(
        errors(
            &at,
            json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "d"})
        ),
        "[]"
    );
    let odd = with(&at, json!({"kind": "D", "name": "d"}));
    assert_eq!(aggregate(&autoscaler_update(&odd, &odd)), "[]");
}

#[test]
fn objects_of_stored_metrics_are_not_checked_again() {
    let of = |version: &str| {
        let object = json!({"describedObject": {"apiVersion": (version), "kind": "S", "name": "s"},
            "metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}});
        with(&["spec", "metrics"], json!([{"type": "Object", "object": (object)}]))
    };
    let (good, bad) = (of("v1"), of("a/b/c"));
    assert_ne!(aggregate(&autoscaler_update(&bad, &good)), "[]");
    assert_eq!(aggregate(&autoscaler_update(&bad, &bad)), "[]");
}

#[test]
fn each_source_requires_its_target() {
    let one = |m: Value| errors(&["spec", "metrics"], Value::Array(vec![m]));
    assert_eq!(
        one(
            json!({"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "0", "averageValue": "1"}}})
        ),
        "[spec.metrics[0].external.target.value: Invalid value: \"0\": must be positive, \
         spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target]"
    );
    assert_eq!(
        one(
            json!({"type": "Object", "object": {"describedObject": {"apiVersion": "v1", "kind": "S", "name": "s"}, "metric": {}, "target": {}}})
        ),
        "[spec.metrics[0].object.metric.name: Required value: must specify a metric name, \
         spec.metrics[0].object.target.type: Required value: must specify a metric target type, \
         spec.metrics[0].object.target.type: Invalid value: \"\": must be either Utilization, Value, or AverageValue, \
         spec.metrics[0].object.target.averageValue: Required value: must set either a target value or averageValue]"
    );
    assert_eq!(
        one(
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "a&b", "averageUtilization": 1}}})
        ),
        "spec.metrics[0].resource.target.type: Invalid value: \"a\\u0026b\": must be either Utilization, Value, or AverageValue"
    );
    let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}});
    let mut both = json!({"type": "Pods"});
    both.set(&["resource"], resource.clone());
    both.set(&["containerResource"], resource);
    assert_eq!(
        one(both),
        "[spec.metrics[0].pods: Required value: must populate information for the given metric source, \
         spec.metrics[0].resource: Forbidden: must populate the given metric source only, \
         spec.metrics[0].containerResource: Forbidden: must populate the given metric source only]"
    );
}

#[test]
fn scaling_rules_are_bounded() {
    assert_eq!(
        errors(
            &["spec", "behavior", "scaleDown"],
            json!({"stabilizationWindowSeconds": -1, "tolerance": "-1", "policies": [{"type": "Pods", "value": 0, "periodSeconds": 1801}]})
        ),
        "[spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero, \
         spec.behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero, \
         spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800, \
         spec.behavior.scaleDown.tolerance: Invalid value: \"-1\": must be greater than or equal to 0]"
    );
}

#[test]
fn stored_zero_min_replicas_stays_valid() {
    let zero = with(&["spec", "minReplicas"], 0i64.into());
    assert!(aggregate(&autoscaler_update(&zero, &zero)).starts_with("spec.metrics: Forbidden"));
    assert!(aggregate(&autoscaler(&zero)).contains("must be greater than or equal to 1"));
}
