//! Validation of an autoscaler's metrics: each needs the source of its type, and the source a target.

use super::{Tolerance, api_version, reference};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, path_segment_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;
use crate::controlplane::validation::common::{is_positive, quantity};
use crate::controlplane::validation::quota::container_name;
use crate::interrupt::checkpoint;

// In the order in which errors list them; `SOURCES` has the order of the checks.
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

/// Metric types and the member with their source, in the order upstream checks them.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// True if the object of a metric has an invalid `apiVersion`.
pub(super) fn has_invalid_objects(list: &Value) -> bool {
    let mut errors = ErrorList::new();
    for m in list.items().iter().filter(|m| m.str_at(&["type"]) == "Object") {
        if !m.get("object").is_null() {
            let object = m.at(&["object", "describedObject"]);
            api_version(&mut errors, object, false, &FieldPath::default());
        }
    }
    !errors.is_empty()
}

pub(super) fn metrics(out: &mut ErrorList, list: &Value, least: Option<i64>, tolerance: &Tolerance, path: &FieldPath) {
    for (i, m) in list.items().iter().enumerate() {
        metric(out, m, tolerance, &path.index(i));
    }
    // Metrics measured at pods need a pod to scale up from zero.
    let outside = |m: &Value| matches!(m.str_at(&["type"]), "Object" | "External");
    if least == Some(0) && !list.items().iter().any(outside) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        out.push(FieldError::forbidden(path, why));
    }
}

fn metric(out: &mut ErrorList, v: &Value, tolerance: &Tolerance, path: &FieldPath) {
    checkpoint();
    let kind = v.str_at(&["type"]);
    let at = path.child("type");
    if kind.is_empty() {
        out.push(FieldError::required(&at, "must specify a metric source type"));
    }
    // An empty type is reported both as missing and as unsupported, as upstream.
    if !TYPES.contains(&kind) {
        out.push(FieldError::not_supported(&at, kind, &TYPES));
    }
    let present: Vec<&str> = SOURCES
        .iter()
        .map(|(_, s)| *s)
        .filter(|s| !v.get(s).is_null())
        .collect();
    // Only the first source is validated in depth; further ones are forbidden below anyway.
    if let Some(first) = present.first() {
        source(out, first, v.get(first), tolerance, &path.child(first));
    }
    let expected = SOURCES.iter().find(|(k, _)| *k == kind).map_or("", |(_, s)| *s);
    if expected.is_empty() {
        // The unsupported type is reported a second time, as upstream.
        out.push(FieldError::not_supported(&at, kind, &TYPES));
    } else if !present.contains(&expected) {
        let why = "must populate information for the given metric source";
        out.push(FieldError::required(&path.child(expected), why));
    }
    // With a single source of the wrong type, the missing one above is the only error.
    if present.len() > 1 {
        for other in present.into_iter().filter(|s| *s != expected) {
            let why = "must populate the given metric source only";
            out.push(FieldError::forbidden(&path.child(other), why));
        }
    }
}

fn source(out: &mut ErrorList, key: &str, v: &Value, tolerance: &Tolerance, path: &FieldPath) {
    let at = path.child("target");
    let goal = v.get("target");
    let has = |key: &str| !goal.get(key).is_null();
    match key {
        "object" => {
            let about = path.child("describedObject");
            reference(out, v.get("describedObject"), &about);
            // Unlike a scale target, the described object may be of the core group.
            if !tolerance.objects {
                api_version(out, v.get("describedObject"), false, &about);
            }
            identifier(out, v.get("metric"), &path.child("metric"));
            target(out, goal, &at);
            if !has("value") && !has("averageValue") {
                let why = "must set either a target value or averageValue";
                out.push(FieldError::required(&at.child("averageValue"), why));
            }
        }
        "external" => {
            identifier(out, v.get("metric"), &path.child("metric"));
            target(out, goal, &at);
            if !has("value") && !has("averageValue") {
                let why = "must set either a target value for metric or a per-pod target";
                out.push(FieldError::required(&at.child("averageValue"), why));
            }
            // Not checked for `Object` metrics: upstream gives the average precedence there.
            if has("value") && has("averageValue") {
                let why = "may not set both a target value for metric and a per-pod target";
                out.push(FieldError::forbidden(&at.child("value"), why));
            }
        }
        "pods" => {
            identifier(out, v.get("metric"), &path.child("metric"));
            target(out, goal, &at);
            if !has("averageValue") {
                let why = "must specify a positive target averageValue";
                out.push(FieldError::required(&at.child("averageValue"), why));
            }
        }
        _ => {
            match v.str_at(&["name"]) {
                "" => out.push(FieldError::required(
                    &path.child("name"),
                    "must specify a resource name",
                )),
                // Upstream checks the name's syntax only for container metrics.
                name if key == "containerResource" => container_name(out, name, &path.child("name")),
                _ => {}
            }
            if key == "containerResource" {
                let container = v.str_at(&["container"]);
                let at = path.child("container");
                if container.is_empty() {
                    out.push(FieldError::required(&at, "must specify a container"));
                } else {
                    invalid_each(out, &at, container, dns1123_label(container));
                }
            }
            target(out, goal, &at);
            if !has("averageUtilization") && !has("averageValue") {
                let why = "must set either a target raw value or a target utilization";
                out.push(FieldError::required(&at.child("averageUtilization"), why));
            }
            if has("averageUtilization") && has("averageValue") {
                let why = "may not set both a target raw value and a target utilization";
                out.push(FieldError::forbidden(&at.child("averageValue"), why));
            }
        }
    }
}

fn identifier(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let at = path.child("name");
    match v.str_at(&["name"]) {
        "" => out.push(FieldError::required(&at, "must specify a metric name")),
        name => invalid_each(out, &at, name, path_segment_name(name)),
    }
}

fn target(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let kind = v.str_at(&["type"]);
    let at = path.child("type");
    if kind.is_empty() {
        out.push(FieldError::required(&at, "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        out.push(FieldError::invalid_enum(&at, kind, why));
    }
    for key in ["value", "averageValue"] {
        if let Some(q) = quantity(v.get(key)).filter(|q| !is_positive(*q)) {
            out.push(FieldError::invalid(&path.child(key), q.to_string(), "must be positive"));
        }
    }
    if let Some(n) = v.get("averageUtilization").as_i64().filter(|n| *n < 1) {
        out.push(FieldError::invalid(
            &path.child("averageUtilization"),
            n,
            "must be greater than 0",
        ));
    }
}
