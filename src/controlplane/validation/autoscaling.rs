//! Validation of HorizontalPodAutoscalers (upstream's `pkg/apis/autoscaling/validation`).
//! v1 objects are converted to v2 first, so their errors have v2 paths too. Metrics are in `metrics`.

mod metrics;

use super::common::{NOT_NEGATIVE, is_negative, not_negative, quantity, required_segment};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;

/// Rules an update relaxes, because the stored object already breaks them.
struct Tolerance {
    /// Smallest valid `minReplicas`: 0 if the stored object has 0.
    least: i64,
    /// Skips the check of the target's `apiVersion`, if it is unchanged.
    target: bool,
    /// Skips the check of the `apiVersion` of objects with metrics, if a stored one is invalid.
    objects: bool,
}

pub(crate) fn autoscaler(v: &Value) -> ErrorList {
    spec(
        v.get("spec"),
        &Tolerance {
            least: 1,
            target: false,
            objects: false,
        },
    )
}

pub(crate) fn autoscaler_update(new: &Value, old: &Value) -> ErrorList {
    // `HPAScaleToZero` is off; a zero stored while it was on must not block updates.
    let zero = old.at(&["spec", "minReplicas"]).as_i64() == Some(0);
    let target = |v: &Value, key: &str| v.at(&["spec", "scaleTargetRef", key]).clone();
    // Targets without a group were accepted before the rule and stay valid while unchanged.
    let same = |key: &str| target(new, key) == target(old, key);
    spec(
        new.get("spec"),
        &Tolerance {
            least: i64::from(!zero),
            target: same("apiVersion") && same("kind"),
            objects: metrics::has_invalid_objects(old.at(&["spec", "metrics"])),
        },
    )
}

pub(crate) fn autoscaler_status(new: &Value, _old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let at = FieldPath::new("status");
    for key in ["currentReplicas", "desiredReplicas"] {
        not_negative(&mut out, new.get("status"), key, &at);
    }
    out
}

fn spec(v: &Value, tolerance: &Tolerance) -> ErrorList {
    let mut out = ErrorList::new();
    let at = FieldPath::new("spec");
    let least = v.get("minReplicas").as_i64();
    if let Some(n) = least.filter(|n| *n < tolerance.least) {
        let why = format!("must be greater than or equal to {}", tolerance.least);
        out.push(FieldError::invalid(&at.child("minReplicas"), n, why));
    }
    let most = v.get("maxReplicas").as_i64().unwrap_or(0);
    let most_at = at.child("maxReplicas");
    // Zero is the Go value of an absent field, hence `Required`.
    if most == 0 {
        out.push(FieldError::required(&most_at, "must be set and greater than 0"));
    } else if most < 0 {
        out.push(FieldError::invalid(
            &most_at,
            most,
            "must be greater than or equal to 1",
        ));
    }
    // In addition to the errors above: an absent maximum is below any minimum.
    if least.is_some_and(|n| most < n) {
        let why = "must be greater than or equal to `minReplicas`";
        out.push(FieldError::invalid(&most_at, most, why));
    }
    let target = v.get("scaleTargetRef");
    let target_at = at.child("scaleTargetRef");
    reference(&mut out, target, &target_at);
    if !tolerance.target {
        // The only scalable kind of the core group.
        let needs_group = target.str_at(&["kind"]) != "ReplicationController";
        api_version(&mut out, target, needs_group, &target_at);
    }
    metrics::metrics(&mut out, v.get("metrics"), least, tolerance, &at.child("metrics"));
    let behavior = v.get("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        rules(
            &mut out,
            behavior.get(direction),
            &at.child("behavior").child(direction),
        );
    }
    out
}

fn reference(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    required_segment(out, v, "kind", path);
    required_segment(out, v, "name", path);
}

fn api_version(out: &mut ErrorList, v: &Value, needs_group: bool, path: &FieldPath) {
    let text = v.str_at(&["apiVersion"]);
    let at = path.child("apiVersion");
    match GroupVersion::parse(text) {
        None => {
            let why = format!("unexpected GroupVersion string: {text}");
            out.push(FieldError::invalid(&at, text, why));
        }
        Some(gv) if gv.group.is_empty() && needs_group => {
            out.push(FieldError::invalid(&at, text, "apiVersion must specify API group"));
        }
        Some(_) => {}
    }
}

fn rules(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    if v.is_null() {
        return;
    }
    if let Some(n) = v.get("stabilizationWindowSeconds").as_i64() {
        let at = path.child("stabilizationWindowSeconds");
        // The limits are constants upstream: an hour for the window, half an hour for a policy's period.
        if n < 0 {
            out.push(FieldError::invalid(&at, n, "must be greater than or equal to zero"));
        } else if n > 3600 {
            out.push(FieldError::invalid(&at, n, "must be less than or equal to 3600"));
        }
    }
    let select = v.get("selectPolicy");
    let known = ["Disabled", "Max", "Min"];
    if let Some(s) = select.as_str().filter(|s| !known.contains(s)) {
        out.push(FieldError::not_supported(&path.child("selectPolicy"), s, &known));
    }
    let policies = v.get("policies").items();
    let at = path.child("policies");
    // Defaulting fills in policies only if the list is absent, so an empty one gets here.
    if policies.is_empty() {
        out.push(FieldError::required(&at, "must specify at least one Policy"));
    }
    for (i, p) in policies.iter().enumerate() {
        policy(out, p, &at.index(i));
    }
    if let Some(q) = quantity(v.get("tolerance")).filter(|q| is_negative(*q)) {
        out.push(FieldError::invalid(
            &path.child("tolerance"),
            q.to_string(),
            NOT_NEGATIVE,
        ));
    }
}

fn policy(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    checkpoint();
    let known = ["Percent", "Pods"];
    let kind = v.str_at(&["type"]);
    if !known.contains(&kind) {
        out.push(FieldError::not_supported(&path.child("type"), kind, &known));
    }
    for key in ["value", "periodSeconds"] {
        let n = v.get(key).as_i64().unwrap_or(0);
        if n <= 0 {
            out.push(FieldError::invalid(&path.child(key), n, "must be greater than zero"));
        }
        if key == "periodSeconds" && n > 1800 {
            let why = "must be less than or equal to 1800";
            out.push(FieldError::invalid(&path.child(key), n, why));
        }
    }
}

#[cfg(test)]
mod tests;
