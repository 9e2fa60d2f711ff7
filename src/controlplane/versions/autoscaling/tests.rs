use super::*;
use crate::controlplane::versions::AUTOSCALERS;
use crate::registry::converting::Pair;

fn v2(metrics: Value, status: Value) -> Value {
    let mut v = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"kind": "K", "name": "n"}},
        "status": {"currentMetrics": null, "desiredReplicas": 0}});
    v.set(&["spec", "metrics"], metrics);
    for (k, x) in status.as_object().into_iter().flat_map(|m| m.iter()) {
        v.set(&["status", k], x.clone());
    }
    v
}

fn annotation<'a>(v: &'a Value, key: &str) -> &'a str {
    v.str_at(&[
        "metadata",
        "annotations",
        &format!("autoscaling.alpha.kubernetes.io/{key}"),
    ])
}

#[test]
fn v1_target_defaults_to_eighty_percent_cpu() {
    let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "K", "name": "n"}}, "status": {}});
    let back = (&AUTOSCALERS).serve((&AUTOSCALERS).store(v1));
    assert_eq!(back.at(&["spec", "targetCPUUtilizationPercentage"]), &80i64.into());
    assert_eq!(back.get("status"), &json!({"currentReplicas": 0, "desiredReplicas": 0}));
}

#[test]
fn metrics_of_every_source_round_trip_through_v1() {
    let metrics = json!([
        {"type": "Object", "object": {"describedObject": {"kind": "S", "name": "s", "apiVersion": "v1"},
            "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "5"}}},
        {"type": "Object", "object": {"describedObject": {"kind": "S", "name": "s"}, "metric": {"name": "m"},
            "target": {"type": "AverageValue", "averageValue": "5"}}},
        {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Mi"}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 7}}},
        {"type": "External", "external": {"metric": {"name": "e", "selector": {"matchExpressions": [
            {"key": "k", "operator": "In", "values": ["v"]}]}}, "target": {"type": "Value", "value": "2"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    ]);
    let hub = v2(metrics, json!({}));
    let v1 = (&AUTOSCALERS).serve(hub.clone());
    assert_eq!(v1.at(&["spec", "targetCPUUtilizationPercentage"]), &60i64.into());
    assert_eq!(
        annotation(&v1, "metrics"),
        r#"[{"type":"Object","object":{"target":{"kind":"S","name":"s","apiVersion":"v1"},"metricName":"m","targetValue":"5","selector":{"matchLabels":{"a":"b"}}}},{"type":"Object","object":{"target":{"kind":"S","name":"s"},"metricName":"m","targetValue":"0","averageValue":"5"}},{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"1k"}},{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Mi"}},{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":7,"container":"c"}},{"type":"External","external":{"metricName":"e","metricSelector":{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]},"targetValue":"2"}}]"#
    );
    assert_eq!((&AUTOSCALERS).store(v1), hub);
}

#[test]
fn status_and_behavior_round_trip_through_annotations() {
    let mut hub = v2(
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}]),
        json!({"conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2024-01-02T03:04:05Z", "reason": "R"}],
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5, "averageValue": "10m"}}}]}),
    );
    hub.set(
        &["spec", "behavior"],
        json!({"scaleUp": {"tolerance": "50m", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 2}]}}),
    );
    let v1 = (&AUTOSCALERS).serve(hub.clone());
    assert_eq!(v1.at(&["status", "currentCPUUtilizationPercentage"]), &5i64.into());
    assert_eq!(
        annotation(&v1, "current-metrics"),
        r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"10m"}}]"#
    );
    assert_eq!(
        annotation(&v1, "conditions"),
        r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2024-01-02T03:04:05Z","reason":"R"}]"#
    );
    assert_eq!(
        annotation(&v1, "behavior"),
        r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":2}],"Tolerance":"50m"},"ScaleDown":null}"#
    );
    assert_eq!((&AUTOSCALERS).store(v1), hub);
}

#[test]
fn malformed_annotations_are_dropped() {
    let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[{\"pods\": 1}]",
            "autoscaling.alpha.kubernetes.io/behavior": "nonsense", "mine": "stays"}},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "K", "name": "n"}}, "status": {}});
    let hub = (&AUTOSCALERS).store(v1);
    assert_eq!(hub.at(&["metadata", "annotations"]), &json!({"mine": "stays"}));
    assert_eq!(hub.at(&["spec", "metrics"]).items().len(), 1);
    assert!(hub.at(&["spec", "behavior"]).is_null());
}

#[test]
fn times_in_annotations_take_their_canonical_form() {
    let condition = r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2024-01-02T3:04:05,5+01:00"}]"#;
    let mut v1 = (&AUTOSCALERS).serve(v2(json!([]), json!({})));
    v1.set(
        &["metadata", "annotations", "autoscaling.alpha.kubernetes.io/conditions"],
        condition,
    );
    let conditions = (&AUTOSCALERS).store(v1).at(&["status", "conditions"]).clone();
    assert_eq!(
        conditions.items()[0].str_at(&["lastTransitionTime"]),
        "2024-01-02T02:04:05Z"
    );
}

#[test]
fn annotations_of_stored_objects_do_not_reach_v1() {
    let mut hub = v2(
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}]),
        json!({}),
    );
    hub.set(
        &["metadata", "annotations", "autoscaling.alpha.kubernetes.io/metrics"],
        r#"[{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"1"}}]"#,
    );
    let v1 = (&AUTOSCALERS).serve(hub);
    assert!(v1.at(&["metadata", "annotations"]).is_null());
}
