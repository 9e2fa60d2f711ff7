//! Defaults of autoscalers (`pkg/apis/autoscaling/{v1,v2}/defaults.go`).

use crate::apimachinery::value::Value;
use crate::controlplane::fields::set_default;
use crate::json;

pub(crate) fn v1(v: &mut Value) {
    set_default(v, &["spec", "minReplicas"], 1i64);
}

pub(crate) fn v2(v: &mut Value) {
    set_default(v, &["spec", "minReplicas"], 1i64);
    if v.at(&["spec", "metrics"]).items().is_empty() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        v.set(&["spec", "metrics"], vec![cpu]);
    }
    if v.at(&["spec", "behavior"]).is_null() {
        return;
    }
    rules(v, "scaleUp", Some(0), &[("Pods", 4), ("Percent", 100)]);
    // No window: the controller's `--horizontal-pod-autoscaler-downscale-stabilization` applies.
    rules(v, "scaleDown", None, &[("Percent", 100)]);
}

fn rules(v: &mut Value, direction: &str, window: Option<i64>, policies: &[(&str, i64)]) {
    let at = |key| ["spec", "behavior", direction, key];
    if let Some(seconds) = window {
        set_default(v, &at("stabilizationWindowSeconds"), seconds);
    }
    set_default(v, &at("selectPolicy"), "Max");
    let all: Vec<Value> = policies
        .iter()
        .map(|(kind, value)| json!({"type": (*kind), "value": (*value), "periodSeconds": 15}))
        .collect();
    set_default(v, &at("policies"), all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behavior_is_completed_only_if_set() {
        let mut v = json!({"spec": {"maxReplicas": 3}});
        v2(&mut v);
        assert_eq!(v.at(&["spec", "minReplicas"]), &1i64.into());
        assert_eq!(v.at(&["spec", "metrics"]).items().len(), 1);
        assert!(v.at(&["spec", "behavior"]).is_null());
        let mut v = json!({"spec": {"behavior": {"scaleDown": {"policies": []}}}});
        v2(&mut v);
        assert_eq!(
            v.at(&["spec", "behavior"]),
            &json!({"scaleDown": {"policies": [], "selectPolicy": "Max"}, "scaleUp": {"selectPolicy": "Max",
                "stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15},
                    {"type": "Percent", "value": 100, "periodSeconds": 15}]}})
        );
    }
}
