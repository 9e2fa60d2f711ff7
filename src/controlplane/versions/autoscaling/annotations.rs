//! Encodes v2 fields as the annotations of v1, byte for byte as Go does. `parse` is the inverse.

use super::text::{always, given, list, object, selector};
use crate::apimachinery::value::Value;

// Go's zero string and zero quantity in JSON, for fields without `omitempty`.
const NO_TEXT: &str = "\"\"";
const NOTHING: &str = "\"0\"";

fn reference(v: &Value) -> Option<String> {
    Some(object([
        ("kind", always(v.get("kind"), NO_TEXT)),
        ("name", always(v.get("name"), NO_TEXT)),
        ("apiVersion", given(v.get("apiVersion"))),
    ]))
}

/// Encodes the sources of a metric or metric status, in Go's order.
fn sources(v: &Value, one: fn(&str, &Value) -> String) -> String {
    let source = |key: &str| {
        let source = v.get(key);
        (!source.is_null()).then(|| one(key, source))
    };
    object([
        ("type", always(v.get("type"), NO_TEXT)),
        ("object", source("object")),
        ("pods", source("pods")),
        ("resource", source("resource")),
        ("containerResource", source("containerResource")),
        ("external", source("external")),
    ])
}

/// Encodes a `v1.MetricSpec`.
pub(super) fn metric(v: &Value) -> String {
    sources(v, |key, s| {
        let name = always(s.at(&["metric", "name"]), NO_TEXT);
        let by = selector(s.at(&["metric", "selector"]));
        let target = |key: &str| s.at(&["target", key]);
        match key {
            "object" => object([
                ("target", reference(s.get("describedObject"))),
                ("metricName", name),
                ("targetValue", always(target("value"), NOTHING)),
                ("selector", by),
                ("averageValue", given(target("averageValue"))),
            ]),
            "pods" => object([
                ("metricName", name),
                ("targetAverageValue", always(target("averageValue"), NOTHING)),
                ("selector", by),
            ]),
            "external" => object([
                ("metricName", name),
                ("metricSelector", by),
                ("targetValue", given(target("value"))),
                ("targetAverageValue", given(target("averageValue"))),
            ]),
            _ => object([
                ("name", always(s.get("name"), NO_TEXT)),
                ("targetAverageUtilization", given(target("averageUtilization"))),
                ("targetAverageValue", given(target("averageValue"))),
                // Last in Go's struct, although it identifies the metric.
                ("container", container(key, s)),
            ]),
        }
    })
}

/// Encodes a `v1.MetricStatus`.
pub(super) fn status(v: &Value) -> String {
    sources(v, |key, s| {
        let name = always(s.at(&["metric", "name"]), NO_TEXT);
        let by = selector(s.at(&["metric", "selector"]));
        let current = |key: &str| s.at(&["current", key]);
        match key {
            "object" => object([
                ("target", reference(s.get("describedObject"))),
                ("metricName", name),
                ("currentValue", always(current("value"), NOTHING)),
                ("selector", by),
                ("averageValue", given(current("averageValue"))),
            ]),
            "pods" => object([
                ("metricName", name),
                ("currentAverageValue", always(current("averageValue"), NOTHING)),
                ("selector", by),
            ]),
            "external" => object([
                ("metricName", name),
                ("metricSelector", by),
                ("currentValue", always(current("value"), NOTHING)),
                ("currentAverageValue", given(current("averageValue"))),
            ]),
            _ => object([
                ("name", always(s.get("name"), NO_TEXT)),
                ("currentAverageUtilization", given(current("averageUtilization"))),
                ("currentAverageValue", always(current("averageValue"), NOTHING)),
                ("container", container(key, s)),
            ]),
        }
    })
}

fn container(key: &str, source: &Value) -> Option<String> {
    (key == "containerResource")
        .then(|| always(source.get("container"), NO_TEXT))
        .flatten()
}

/// Encodes a `v1.HorizontalPodAutoscalerCondition`.
pub(super) fn condition(v: &Value) -> String {
    object([
        ("type", always(v.get("type"), NO_TEXT)),
        ("status", always(v.get("status"), NO_TEXT)),
        ("lastTransitionTime", always(v.get("lastTransitionTime"), "null")),
        ("reason", given(v.get("reason"))),
        ("message", given(v.get("message"))),
    ])
}

/// Encodes the behavior. Upstream encodes its internal struct here, which has no JSON tags: every field is
/// written, under its Go name.
pub(super) fn behavior(v: &Value) -> String {
    let policy = |p: &Value| {
        object([
            ("Type", always(p.get("type"), NO_TEXT)),
            ("Value", always(p.get("value"), "0")),
            ("PeriodSeconds", always(p.get("periodSeconds"), "0")),
        ])
    };
    let rules = |key: &str| {
        let rules = v.get(key);
        if rules.is_null() {
            return Some("null".to_owned());
        }
        let policies = match rules.get("policies") {
            Value::Array(all) => list(all.iter().map(policy)),
            _ => "null".to_owned(),
        };
        Some(object([
            (
                "StabilizationWindowSeconds",
                always(rules.get("stabilizationWindowSeconds"), "null"),
            ),
            ("SelectPolicy", always(rules.get("selectPolicy"), "null")),
            ("Policies", Some(policies)),
            ("Tolerance", always(rules.get("tolerance"), "null")),
        ]))
    };
    object([("ScaleUp", rules("scaleUp")), ("ScaleDown", rules("scaleDown"))])
}
