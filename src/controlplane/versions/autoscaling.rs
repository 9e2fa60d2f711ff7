//! Conversion of HorizontalPodAutoscalers between v2 and v1, following upstream's
//! `pkg/apis/autoscaling/v1/conversion.go`. v1 has fields for a single cpu target only; all other v2 fields
//! are stored in annotations, so that they survive a round trip. Entry points: [`to_v1`] and [`to_v2`].
//!
//! ```text
//! v2                                v1
//! metrics[cpu].averageUtilization   spec.targetCPUUtilizationPercentage (the first; a second is lost)
//! other metrics                     …/metrics, in v1's older shape
//! status.currentMetrics             …/current-metrics (all), status.currentCPUUtilizationPercentage
//! status.conditions                 …/conditions
//! behavior                          …/behavior, under Go's internal names
//! ```

mod annotations;
mod parse;
mod text;

use crate::apimachinery::value::Value;
use crate::json;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Annotations that exist only in v1; see [`drop_round_trip_annotations`].
pub(super) const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
];

/// Removes the annotations that represent v2 fields in v1. Annotations that a v2 client wrote under these names
/// must not reach clients of v1, which would send them back as fields.
pub(crate) fn drop_round_trip_annotations(hpa: &mut Value) {
    let Some(all) = hpa.at_mut(&["metadata", "annotations"]).and_then(Value::as_object_mut) else {
        return;
    };
    all.retain(|key, _| !ANNOTATIONS.contains(&key));
    if all.is_empty() {
        hpa.unset(&["metadata", "annotations"]);
    }
}

/// True for a cpu resource metric. v1 has a field for its utilization.
fn is_cpu(metric: &Value) -> bool {
    metric.str_at(&["type"]) == "Resource" && metric.str_at(&["resource", "name"]) == "cpu"
}

fn cpu_metric(key: &str, percent: Value) -> Value {
    let mut target = json!({});
    target.set(&["averageUtilization"], percent);
    if key == "target" {
        target.set(&["type"], "Utilization");
    }
    let mut metric = json!({"type": "Resource", "resource": {"name": "cpu"}});
    metric.set(&["resource", key], target);
    metric
}

pub(super) fn to_v1(hpa: &mut Value) {
    let metrics = hpa.unset(&["spec", "metrics"]).unwrap_or_default();
    let behavior = hpa.unset(&["spec", "behavior"]).unwrap_or_default();
    let current = hpa.unset(&["status", "currentMetrics"]).unwrap_or_default();
    let conditions = hpa.unset(&["status", "conditions"]).unwrap_or_default();
    let utilization = |m: &Value, key: &str| match m.at(&["resource", key, "averageUtilization"]) {
        Value::Null => None,
        percent => Some(percent.clone()),
    };
    let target = metrics.items().iter().filter(|m| is_cpu(m));
    if let Some(percent) = target.filter_map(|m| utilization(m, "target")).next() {
        hpa.set(&["spec", "targetCPUUtilizationPercentage"], percent);
    }
    let shown = current.items().iter().filter(|m| is_cpu(m));
    // As upstream, the last match wins in the status, but the first one in the spec.
    if let Some(percent) = shown.filter_map(|m| utilization(m, "current")).next_back() {
        hpa.set(&["status", "currentCPUUtilizationPercentage"], percent);
    }
    let others = metrics.items().iter();
    // Includes a cpu target by absolute value, for which v1 has no field.
    let others: Vec<&Value> = others
        .filter(|m| !(is_cpu(m) && utilization(m, "target").is_some()))
        .collect();
    // Only those of this conversion remain.
    drop_round_trip_annotations(hpa);
    let mut say = |key: &str, text: String| hpa.set(&["metadata", "annotations", key], text);
    if !others.is_empty() {
        say(METRICS, text::list(others.into_iter().map(annotations::metric)));
    }
    if !current.items().is_empty() {
        say(CURRENT, text::list(current.items().iter().map(annotations::status)));
    }
    if !conditions.items().is_empty() {
        say(
            CONDITIONS,
            text::list(conditions.items().iter().map(annotations::condition)),
        );
    }
    if !behavior.is_null() {
        say(BEHAVIOR, annotations::behavior(&behavior));
    }
}

pub(super) fn to_v2(hpa: &mut Value) {
    let annotation = |hpa: &Value, key: &str| {
        let text = hpa.at(&["metadata", "annotations", key]).as_str()?;
        crate::apimachinery::codec::json::decode(text.as_bytes()).ok()
    };
    // As upstream, a malformed annotation is ignored as a whole.
    let list = |key: &str, one: fn(&Value) -> Option<Value>| -> Option<Vec<Value>> {
        match annotation(hpa, key)? {
            Value::Array(all) => all.iter().map(one).collect(),
            _ => None,
        }
    };
    let mut metrics = list(METRICS, parse::metric).unwrap_or_default();
    let current = list(CURRENT, parse::status);
    let conditions = list(CONDITIONS, parse::condition);
    let behavior = annotation(hpa, BEHAVIOR).and_then(|v| parse::behavior(&v));

    // After the metrics of the annotation, as upstream.
    if let Some(percent) = hpa.unset(&["spec", "targetCPUUtilizationPercentage"]) {
        metrics.push(cpu_metric("target", percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric("target", 80i64.into()));
    }
    hpa.set(&["spec", "metrics"], metrics);
    let shown = hpa.unset(&["status", "currentCPUUtilizationPercentage"]);
    match (current, shown) {
        // The annotation holds all current metrics, cpu included.
        (Some(all), _) => hpa.set(&["status", "currentMetrics"], all),
        (None, Some(percent)) => hpa.set(&["status", "currentMetrics"], vec![cpu_metric("current", percent)]),
        (None, None) => {}
    }
    if let Some(conditions) = conditions {
        hpa.set(&["status", "conditions"], conditions);
    }
    if let Some(behavior) = behavior {
        hpa.set(&["spec", "behavior"], behavior);
    }
    drop_round_trip_annotations(hpa);
}

#[cfg(test)]
mod tests;
