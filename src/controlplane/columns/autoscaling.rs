//! Columns of HorizontalPodAutoscalers (the same for autoscaling/v1 and v2) and of Scales.

use super::cells::{age, name};
use super::table;
use super::text::{AGE, NAME};
use super::words::{HPA_CURRENT, HPA_MAX, HPA_METRICS, HPA_MIN, HPA_TARGET, SCALE_AVAILABLE, SCALE_DESIRED};
use crate::apimachinery::value::{Str, Value};
use crate::registry::resource::Columns;

const UNKNOWN: &str = "<unknown>";
/// Metrics printed before the rest is only counted (`+ N more...`).
const SHOWN: usize = 2;

fn amount(v: &Value) -> String {
    v.as_str().unwrap_or(UNKNOWN).to_owned()
}

fn percent(v: &Value, none: &str) -> String {
    v.as_i64().map_or_else(|| none.to_owned(), |n| format!("{n}%"))
}

/// Formats one metric as `current/target`.
fn metric(spec: &Value, status: &Value) -> String {
    let key = match spec.str_at(&["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        // Validation rejects it, but older objects may have one.
        _ => return "<unknown type>".to_owned(),
    };
    let target = |of: &str| spec.at(&[key, "target", of]);
    let current = |of: &str| status.at(&[key, "current", of]);
    // An average target takes precedence over a plain value or a utilization, as upstream prints it.
    let by_average = !target("averageValue").is_null();
    match key {
        "pods" => format!("{}/{}", amount(current("averageValue")), amount(target("averageValue"))),
        "external" | "object" if by_average => {
            format!(
                "{}/{} (avg)",
                amount(current("averageValue")),
                amount(target("averageValue"))
            )
        }
        "external" | "object" => format!("{}/{}", amount(current("value")), amount(target("value"))),
        _ => {
            let resource = spec.str_at(&[key, "name"]);
            let (current, target) = if by_average {
                (amount(current("averageValue")), amount(target("averageValue")))
            } else {
                (
                    percent(current("averageUtilization"), UNKNOWN),
                    percent(target("averageUtilization"), "<auto>"),
                )
            };
            format!("{resource}: {current}/{target}")
        }
    }
}

fn targets(o: &Value) -> String {
    let metrics = o.at(&["spec", "metrics"]).items();
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = o.at(&["status", "currentMetrics"]).items();
    let shown = metrics.iter().enumerate();
    let shown: Vec<String> = shown
        // Statuses carry no key: upstream pairs them with the metrics by position.
        .map(|(i, m)| metric(m, statuses.get(i).unwrap_or(&Value::Null)))
        .take(SHOWN)
        .collect();
    let text = shown.join(", ");
    if metrics.len() > SHOWN {
        return format!("{text} + {} more...", metrics.len() - SHOWN);
    }
    text
}

pub(crate) fn horizontal_pod_autoscalers() -> Columns {
    table(
        &[
            ("Name", "string", 0, NAME),
            ("Reference", "string", 0, HPA_TARGET),
            ("Targets", "string", 0, HPA_METRICS),
            ("MinPods", "string", 0, HPA_MIN),
            ("MaxPods", "string", 0, HPA_MAX),
            ("Replicas", "string", 0, HPA_CURRENT),
            ("Age", "string", 0, AGE),
        ],
        &[
            "spec.{scaleTargetRef,metrics,minReplicas,maxReplicas}",
            "status.{currentMetrics,currentReplicas}",
        ],
        |o| {
            let to = |key: &str| o.str_at(&["spec", "scaleTargetRef", key]);
            let count = |path: &[&str]| o.at(path).as_i64().unwrap_or(0);
            let least = o.at(&["spec", "minReplicas"]).as_i64();
            vec![
                name(o),
                format!("{}/{}", to("kind"), to("name")).into(),
                targets(o).into(),
                least.map_or_else(|| "<unset>".to_owned(), |n| n.to_string()).into(),
                count(&["spec", "maxReplicas"]).into(),
                count(&["status", "currentReplicas"]).into(),
                age(o),
            ]
        },
    )
}

/// Columns of Scales. Upstream's columns have no format here, not even for the name.
pub(crate) fn scales() -> Columns {
    let mut columns = table(
        &[
            ("Name", "string", 0, NAME),
            ("Desired", "integer", 0, SCALE_DESIRED),
            ("Available", "integer", 0, SCALE_AVAILABLE),
            ("Age", "string", 0, AGE),
        ],
        &["spec.replicas", "status.replicas"],
        |o| {
            let count = |path: &[&str]| Value::from(o.at(path).as_i64().unwrap_or(0));
            vec![
                name(o),
                count(&["spec", "replicas"]),
                count(&["status", "replicas"]),
                age(o),
            ]
        },
    );
    let mut headings = columns.columns.to_vec();
    for heading in &mut headings {
        heading.format = Str::default();
    }
    columns.columns = headings.into();
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn metrics_beyond_two_are_only_counted() {
        let utilization =
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "5"}}});
        let object = json!({"type": "Object", "object": {"target": {"averageValue": "7"}}});
        let mut o = json!({"status": {"currentMetrics": [
            {"resource": {"current": {"averageUtilization": 3}}}, {"pods": {"current": {"averageValue": "1"}}}]}});
        assert_eq!(targets(&o), "<none>");
        o.set(&["spec", "metrics"], vec![utilization.clone(), pods.clone()]);
        assert_eq!(targets(&o), "cpu: 3%/80%, 1/5");
        o.set(&["spec", "metrics"], vec![object.clone()]);
        assert_eq!(targets(&o), "<unknown>/7 (avg)");
        o.set(&["spec", "metrics"], vec![json!({"type": "X"})]);
        assert_eq!(targets(&o), "<unknown type>");
        o.set(&["spec", "metrics"], vec![utilization, pods, object]);
        assert_eq!(targets(&o), "cpu: 3%/80%, 1/5 + 1 more...");
    }
}
