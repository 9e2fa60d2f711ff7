//! Validation of PodTemplates, ReplicationControllers, Deployments, ReplicaSets, DaemonSets and
//! ControllerRevisions (upstream's `pkg/apis/apps/validation`), and helpers that StatefulSets and Jobs share.

use super::common::{
    NOT_NEGATIVE, int_or_percent, is_zero_or_absent, not_negative, not_supported_raw, percentage_at_most_100,
};
use super::{go_form, pod};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::labels::LabelSelector;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, label_selector, same, selector_check};

/// Annotation with `spec.rollbackTo` of extensions/v1beta1, which upstream's internal type of Deployments still has.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

pub(crate) fn pod_template(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    pod::template(&mut out, v.get("template"), None, &FieldPath::new("template"));
    out
}

pub(crate) fn pod_template_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (template, was) = (new.get("template"), old.get("template"));
    pod::template(&mut out, template, Some(was), &FieldPath::new("template"));
    out
}

/// The template of a stored workload, from which its update may have kept what is invalid by now.
pub(super) fn stored_template(old: Option<&Value>) -> Option<&Value> {
    old.map(|old| old.at(&["spec", "template"]))
}

pub(super) fn mismatch(out: &mut ErrorList, template: &Value, at: &FieldPath) {
    out.push(FieldError::invalid_raw(
        &at.child("metadata").child("labels"),
        show_json(template.at(&["metadata", "labels"])),
        "`selector` does not match template `labels`",
    ));
}

/// Checks the template of a kind whose pods run indefinitely: restart policy `Always`, no deadline. `kind` is used in
/// the message.
pub(super) fn always(out: &mut ErrorList, template: &Value, at: &FieldPath, kind: &str) {
    let spec = at.child("spec");
    let policy = template.str_at(&["spec", "restartPolicy"]);
    if policy != "Always" {
        out.push(FieldError::not_supported(
            &spec.child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if !template.at(&["spec", "activeDeadlineSeconds"]).is_null() {
        out.push(FieldError::forbidden(
            &spec.child("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
}

/// Checks a required, non-empty selector; returns `None` if it cannot be parsed, after reporting
/// `unreadable`.
pub(super) fn required_selector(
    out: &mut ErrorList,
    spec: &Value,
    path: &FieldPath,
    kind: &str,
    unreadable: &str,
) -> Option<LabelSelector> {
    let (at, selector) = (path.child("selector"), spec.get("selector"));
    if selector.is_null() {
        out.push(FieldError::required(&at, ""));
    } else {
        label_selector(out, selector, &at);
        // It would select every pod of the namespace.
        if selector.get("matchLabels").is_empty_value() && selector.get("matchExpressions").is_empty_value() {
            let why = format!("empty selector is invalid for {kind}");
            out.push(FieldError::invalid_raw(&at, go_form::selector(selector), why));
        }
    }
    match LabelSelector::from_object(selector) {
        Ok(s) => Some(s),
        Err(_) => {
            out.push(FieldError::invalid_raw(&at, go_form::selector(selector), unreadable));
            None
        }
    }
}

/// True if the selector matches the template's labels. An empty selector is reported by
/// [`required_selector`].
pub(super) fn finds(selector: &LabelSelector, raw: &Value, template: &Value) -> bool {
    // A null selector matches nothing, unlike an empty one: upstream's `LabelSelectorAsSelector`.
    if raw.is_null() {
        return false;
    }
    selector.is_everything() || selector.matches_map(template.at(&["metadata", "labels"]))
}

/// Checks the template of a Deployment or ReplicaSet against its selector.
fn replica_template(
    out: &mut ErrorList,
    spec: &Value,
    old: Option<&Value>,
    path: &FieldPath,
    selector: &LabelSelector,
) {
    let (template, at) = (spec.get("template"), path.child("template"));
    if !finds(selector, spec.get("selector"), template) {
        mismatch(out, template, &at);
    }
    pod::template(out, template, stored_template(old), &at);
    always(out, template, &at, "ReplicaSet");
}

pub(crate) fn replication_controller(v: &Value) -> ErrorList {
    checked_controller(v, None)
}

pub(crate) fn replication_controller_update(new: &Value, old: &Value) -> ErrorList {
    checked_controller(new, Some(old))
}

fn checked_controller(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    not_negative(&mut out, spec, "minReadySeconds", &path);
    // A plain map, not a `LabelSelector`: this kind predates the latter.
    let selector = LabelSelector::from_map(spec.get("selector"));
    if spec.get("selector").is_empty_value() {
        out.push(FieldError::required(&path.child("selector"), ""));
    }
    not_negative(&mut out, spec, "replicas", &path);
    let (template, at) = (spec.get("template"), path.child("template"));
    if template.is_null() {
        out.push(FieldError::required(&at, ""));
        return out;
    }
    if !selector.is_everything() && !selector.matches_map(template.at(&["metadata", "labels"])) {
        mismatch(&mut out, template, &at);
    }
    pod::template(&mut out, template, stored_template(old), &at);
    always(&mut out, template, &at, "ReplicationController");
    out
}

pub(crate) fn deployment(v: &Value) -> ErrorList {
    checked_deployment(v, None)
}

fn checked_deployment(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    not_negative(&mut out, spec, "replicas", &path);
    if let Some(selector) = required_selector(&mut out, spec, &path, "deployment", "invalid label selector") {
        replica_template(&mut out, spec, old, &path, &selector);
    }
    deployment_strategy(&mut out, spec.get("strategy"), &path.child("strategy"));
    for key in ["minReadySeconds", "revisionHistoryLimit"] {
        not_negative(&mut out, spec, key, &path);
    }
    let revision = v.annotation(ROLLBACK_TO).and_then(|text| text.parse::<i64>().ok());
    if let Some(n) = revision.filter(|n| *n < 0) {
        let at = path.child("rollback").child("version");
        out.push(FieldError::invalid(&at, n, NOT_NEGATIVE));
    }
    not_negative(&mut out, spec, "progressDeadlineSeconds", &path);
    let number = |key: &str| spec.get(key).as_i64();
    if let Some(deadline) = number("progressDeadlineSeconds")
        // Otherwise the rollout would fail before any new pod could count as available.
        && deadline <= number("minReadySeconds").unwrap_or(0)
    {
        out.push(FieldError::invalid(
            &path.child("progressDeadlineSeconds"),
            deadline,
            "must be greater than minReadySeconds",
        ));
    }
    out
}

fn deployment_strategy(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    let (rolling, at) = (v.get("rollingUpdate"), path.child("rollingUpdate"));
    match v.str_at(&["type"]) {
        "Recreate" => {
            if !rolling.is_null() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                out.push(FieldError::forbidden(&at, why));
            }
        }
        "RollingUpdate" if rolling.is_null() => {
            out.push(FieldError::required(&at, "this should be defaulted and never be nil"));
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            let at_unavailable = at.child("maxUnavailable");
            int_or_percent(out, unavailable, &at_unavailable);
            int_or_percent(out, surge, &at.child("maxSurge"));
            // The rollout could neither remove an old pod nor add a new one.
            if is_zero_or_absent(unavailable) && is_zero_or_absent(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                out.push(FieldError::invalid_enum(&at_unavailable, unavailable.clone(), why));
            }
            // Unlike the surge: no more than all pods can be unavailable.
            percentage_at_most_100(out, unavailable, &at_unavailable);
        }
        _ => out.push(not_supported_raw(
            path,
            go_form::compact(v, go_form::STRATEGY),
            &["Recreate", "RollingUpdate"],
        )),
    }
}

/// Reports a changed selector, which is immutable.
fn same_selector(out: &mut ErrorList, new: &Value, old: &Value) {
    let path = ["spec", "selector"];
    if !same(new.at(&path), old.at(&path)) {
        let (at, shown) = (
            FieldPath::new("spec").child("selector"),
            go_form::selector(new.at(&path)),
        );
        out.push(FieldError::invalid_raw(&at, shown, IMMUTABLE));
    }
}

pub(crate) fn deployment_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = checked_deployment(new, Some(old));
    same_selector(&mut out, new, old);
    out
}

pub(crate) fn replica_set(v: &Value) -> ErrorList {
    checked_replica_set(v, None)
}

fn checked_replica_set(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    for key in ["replicas", "minReadySeconds"] {
        not_negative(&mut out, spec, key, &path);
    }
    // Upstream's message has `deployment` for ReplicaSets too.
    if let Some(selector) = required_selector(&mut out, spec, &path, "deployment", "invalid label selector") {
        replica_template(&mut out, spec, old, &path, &selector);
    }
    out
}

pub(crate) fn replica_set_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = checked_replica_set(new, Some(old));
    same_selector(&mut out, new, old);
    out
}

/// Reports the counts `parts` that exceed the replicas, and available replicas that exceed the ready ones,
/// with the message `not_ready`.
pub(super) fn parts_of_replicas(out: &mut ErrorList, status: &Value, parts: &[&str], not_ready: &str) {
    at_most(out, status, parts, "replicas", "cannot be greater than status.replicas");
    at_most(out, status, &["availableReplicas"], "readyReplicas", not_ready);
}

/// Reports the counts at `keys` that exceed the count `of`, of which they are a part.
fn at_most(out: &mut ErrorList, status: &Value, keys: &[&str], of: &str, text: &str) {
    let count = |key: &str| status.get(key).as_i64().unwrap_or(0);
    for key in keys {
        if count(key) > count(of) {
            let at = FieldPath::new("status").child(key);
            out.push(FieldError::invalid(&at, count(key), text));
        }
    }
}

/// Reports a collision count that decreased or was removed.
pub(super) fn collisions(out: &mut ErrorList, new: &Value, old: &Value) {
    let count = |v: &Value| v.at(&["status", "collisionCount"]).as_i64();
    let lost = match (count(new), count(old)) {
        (Some(now), Some(was)) => now < was,
        // Removal would restart the count, and hash names would collide again.
        (None, was) => was.is_some(),
        (Some(_), None) => false,
    };
    if lost {
        let at = FieldPath::new("status").child("collisionCount");
        let now = count(new).unwrap_or(0);
        out.push(FieldError::invalid(&at, now, "cannot be decremented"));
    }
}

pub(crate) fn replicas_status(new: &Value, _old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    for key in [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ] {
        not_negative(&mut out, status, key, &path);
    }
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    parts_of_replicas(&mut out, status, &parts, "cannot be greater than readyReplicas");
    out
}

pub(crate) fn deployment_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    for key in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ] {
        not_negative(&mut out, status, key, &path);
    }
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    parts_of_replicas(&mut out, status, &parts, "cannot be greater than readyReplicas");
    collisions(&mut out, new, old);
    out
}

pub(crate) fn daemon_set(v: &Value) -> ErrorList {
    checked_daemon_set(v, None)
}

fn checked_daemon_set(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    // No `Required` for a missing selector, as upstream: it only shows as a mismatch with the template.
    let (raw, at) = (spec.get("selector"), path.child("selector"));
    // Unlike for Deployments, whose selectors upstream always checks in full.
    let check = selector_check(old.map(|old| old.at(&["spec", "selector"])));
    check(&mut out, raw, &at);
    let (template, template_at) = (spec.get("template"), path.child("template"));
    if let Ok(selector) = LabelSelector::from_object(raw)
        && !finds(&selector, raw, template)
    {
        mismatch(&mut out, template, &template_at);
    }
    if !raw.is_null() && raw.get("matchLabels").is_empty_value() && raw.get("matchExpressions").is_empty_value() {
        let why = "empty selector is invalid for daemonset";
        out.push(FieldError::invalid_raw(&at, go_form::selector(raw), why));
    }
    pod::template(&mut out, template, stored_template(old), &template_at);
    always(&mut out, template, &template_at, "DaemonSet");
    not_negative(&mut out, spec, "minReadySeconds", &path);
    daemon_strategy(&mut out, spec.get("updateStrategy"), &path.child("updateStrategy"));
    not_negative(&mut out, spec, "revisionHistoryLimit", &path);
    out
}

fn daemon_strategy(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    match v.str_at(&["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (rolling, at) = (v.get("rollingUpdate"), path.child("rollingUpdate"));
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            // All forms before all limits, as upstream.
            for check in [int_or_percent, percentage_at_most_100] {
                check(out, unavailable, &at.child("maxUnavailable"));
                check(out, surge, &at.child("maxSurge"));
            }
            match (is_zero_or_absent(unavailable), is_zero_or_absent(surge)) {
                // With a surge the old pod of a node is removed only once the new one is ready, so none is
                // ever unavailable.
                (false, false) => out.push(FieldError::invalid_enum(
                    &at.child("maxSurge"),
                    surge.clone(),
                    "may not be set when maxUnavailable is non-zero",
                )),
                (true, true) => out.push(FieldError::required(
                    &at.child("maxUnavailable"),
                    "cannot be 0 when maxSurge is 0",
                )),
                _ => {}
            }
        }
        _ => out.push(not_supported_raw(
            path,
            go_form::compact(v, go_form::STRATEGY),
            &["RollingUpdate", "OnDelete"],
        )),
    }
}

pub(crate) fn daemon_set_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    same_selector(&mut out, new, old);
    out.extend(checked_daemon_set(new, Some(old)));
    out
}

pub(crate) fn daemon_set_status(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (status, path) = (new.get("status"), FieldPath::new("status"));
    for key in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        not_negative(&mut out, status, key, &path);
    }
    collisions(&mut out, new, old);
    out
}

pub(crate) fn controller_revision(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    not_negative(&mut out, v, "revision", &FieldPath::default());
    let at = FieldPath::new("data");
    match v.get("data") {
        Value::Null => out.push(FieldError::required(&at, "data is mandatory")),
        Value::Object(_) => {}
        _ => out.push(FieldError::required(&at, "data must be a valid JSON object")),
    }
    out
}

pub(crate) fn controller_revision_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    not_negative(&mut out, new, "revision", &FieldPath::default());
    // Strict equality: controllers compare the raw data to find an equal revision.
    if new.get("data") != old.get("data") {
        let at = FieldPath::new("data");
        out.push(FieldError::invalid_raw(&at, show_json(new.get("data")), IMMUTABLE));
    }
    out
}

#[cfg(test)]
mod tests;
