//! Validation of pods and pod templates (upstream's `pkg/apis/core/validation/validation.go`).
//!
//! Entry points: [`pod`] and [`pod_update`] for pods, [`template`] for workloads. The submodules check one
//! part of the spec each, except `parts` (updates of subresources), `gated` (updates of scheduling constraints),
//! `status` and `warnings`.

mod affinity;
mod annotations;
mod container;
mod env;
mod gated;
mod mounts;
mod parts;
mod probe;
mod resources;
mod security;
mod spec;
mod status;
mod stored;
mod tolerated;
mod volume;
mod warnings;
mod windows;

use super::go_form;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::validation::meta;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, elements_mut, same};
pub(super) use affinity::{node_selector, node_selector_update};
pub(super) use env::{VOLUME_FIELDS, field_ref, resource_ref};
pub(crate) use parts::{ephemeral_containers_update, resize};
pub(super) use resources::{Claims, container as container_resources};
pub(super) use spec::toleration;
pub(crate) use status::pod_status;
use std::collections::HashMap;
pub(super) use tolerated::Tolerated;
pub(crate) use warnings::{deprecated_label, template as template_warnings};

/// The owner of a spec. Templates skip checks that need the pod's identity or that came too late to be applied to
/// stored workloads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of<'a> {
    Pod {
        /// `metadata.name`, from which generated claim names derive.
        name: &'a str,
        /// True for a mirror pod, which represents a static pod of a kubelet.
        mirror: bool,
    },
    Template,
}

pub(crate) fn pod(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let metadata = FieldPath::new("metadata").child("annotations");
    annotations::annotations(&mut out, v, None, &metadata);
    out.extend(checked_spec(v, None));
    let path = FieldPath::new("spec");
    // Ephemeral containers have a subresource, and with it a permission, of their own.
    if !v.at(&["spec", "ephemeralContainers"]).items().is_empty() {
        out.push(FieldError::forbidden(
            &path.child("ephemeralContainers"),
            "cannot be set on create",
        ));
    }
    let gates = v.at(&["spec", "schedulingGates"]).items();
    // A bound pod is never scheduled, so its gates could not have an effect.
    if !gates.is_empty() && !v.str_at(&["spec", "nodeName"]).is_empty() {
        out.push(FieldError::forbidden(
            &path.child("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
    // On create only: stored pods may disagree.
    annotations::agreement(&mut out, v, &path);
    out
}

/// Prints a toleration like upstream's internal struct.
pub(super) fn toleration_shown(t: &Value) -> String {
    go_form::compact(t, go_form::TOLERATION)
}

/// Checks a pod's spec; `old` is the stored pod.
fn checked_spec(v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    let mirror = !v.at(&["metadata", "annotations", annotations::MIRROR]).is_null();
    let name = v.name();
    let tolerated = Tolerated::by(old.map(|old| old.get("spec")));
    spec::spec(&mut out, spec, &path, Of::Pod { name, mirror }, tolerated);
    volume::tokens(&mut out, spec, &path);
    // Ephemeral containers check their image themselves, templates included.
    for list in ["containers", "initContainers"] {
        for (i, c) in spec.get(list).items().iter().enumerate() {
            container::image_of_pod(&mut out, c, &path.child(list).index(i));
        }
    }
    out
}

/// Checks a template's labels and annotations. As upstream, their paths omit `metadata`.
pub(super) fn template_metadata(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    meta::validate_labels(v.at(&["metadata", "labels"]), &path.child("labels"), out);
    let annotations = path.child("annotations");
    meta::validate_annotations(v.at(&["metadata", "annotations"]), &annotations, out);
    annotations::annotations(out, v, None, &annotations);
}

/// Validates a pod template: its metadata, then the spec. `old` is the stored template.
pub(super) fn template(out: &mut ErrorList, v: &Value, old: Option<&Value>, path: &FieldPath) {
    template_metadata(out, v, path);
    let at = path.child("spec");
    let tolerated = Tolerated::by(old.map(|old| old.get("spec")));
    spec::spec(out, v.get("spec"), &at, Of::Template, tolerated);
    annotations::agreement(out, v, &at);
    if !v.at(&["spec", "ephemeralContainers"]).items().is_empty() {
        out.push(FieldError::forbidden(
            &at.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

pub(crate) fn pod_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let metadata = FieldPath::new("metadata").child("annotations");
    annotations::annotations(&mut out, new, Some(old), &metadata);
    out.extend(checked_spec(new, Some(old)));
    annotations::update(&mut out, new, old);
    let path = FieldPath::new("spec");
    for key in ["containers", "initContainers"] {
        let (at, now) = (path.child(key), new.at(&["spec", key]).items());
        if now.len() != old.at(&["spec", key]).items().len() {
            out.push(FieldError::forbidden(
                &at,
                "pod updates may not add or remove containers",
            ));
            // The comparisons below pair containers by position, so they need lists of equal length.
            return out;
        }
        for (i, c) in now.iter().enumerate() {
            // As upstream, reported a second time: `checked_spec` has already done so.
            if c.str_at(&["image"]).is_empty() {
                out.push(FieldError::required(&at.index(i).child("image"), ""));
            }
            container::image_of_pod(&mut out, c, &at.index(i));
        }
    }
    if !deadline(&mut out, new, old, &path) {
        return out;
    }
    let had = old.at(&["spec", "tolerations"]).items();
    // Only the duration may change: extending it lets a pod stay longer on a tainted node.
    let bare = |t: &Value| {
        let mut t = t.clone();
        t.unset(&["tolerationSeconds"]);
        json::to_string(&t)
    };
    // Hashed by their JSON: comparing all pairs would be quadratic in the client's list.
    let now: Seen<String> = new.at(&["spec", "tolerations"]).items().iter().map(bare).collect();
    if had.iter().any(|t| !now.contains(&bare(t))) {
        out.push(FieldError::forbidden(
            &path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    } else {
        // As upstream, checked a second time: `checked_spec` has already done so.
        spec::tolerations(&mut out, new.get("spec"), &path);
    }
    let had = old.at(&["spec", "schedulingGates"]).items();
    added_gates(&mut out, new, had, &path.child("schedulingGates"));
    // By the stored pod: removing the last gate in the same update still allows to change where it runs.
    let gated = !had.is_empty();
    if gated {
        gated::places(&mut out, new.get("spec"), old.get("spec"), &path);
    }
    let now = with_mutable_parts_of(new.get("spec"), old.get("spec"), gated);
    if !same(&now, old.get("spec")) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        let (was, now) = (go_form::pod_spec(old.get("spec")), go_form::pod_spec(&now));
        let difference = go_form::difference(&was, &now, go_form::POD_SPEC);
        out.push(FieldError::forbidden(&path, format!("{why}{difference}")));
    }
    out
}

/// Refuses scheduling gates that the stored pod does not have.
fn added_gates(out: &mut ErrorList, new: &Value, had: &[Value], path: &FieldPath) {
    let had: Seen<&str> = had.iter().map(|gate| gate.str_at(&["name"])).collect();
    let gates = new.at(&["spec", "schedulingGates"]).items().iter();
    let names = gates.map(|gate| gate.str_at(&["name"])).enumerate();
    // As upstream, a repeated gate is reported once, at its last place.
    let last: HashMap<&str, usize> = names.clone().map(|(i, name)| (name, i)).collect();
    for (i, name) in names {
        if last.get(name) == Some(&i) && !had.contains(&name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            out.push(FieldError::forbidden(&path.index(i).child("name"), why));
        }
    }
}

/// Checks a change of the deadline. Returns false for a wrong one, after which upstream checks nothing else.
fn deadline(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) -> bool {
    let of = |v: &Value| v.at(&["spec", "activeDeadlineSeconds"]).as_i64();
    let at = path.child("activeDeadlineSeconds");
    match (of(old), of(new)) {
        (Some(_), None) => out.push(FieldError::invalid(
            &at,
            Value::Null,
            "must not update from a positive integer to nil value",
        )),
        // Zero passes here, but not the check of the spec, which also runs.
        (_, Some(now)) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            let why = "must be between 0 and 2147483647, inclusive";
            out.push(FieldError::invalid(&at, now, why));
            return false;
        }
        // A deadline can only be moved up: the kubelet may already have acted on it.
        (Some(was), Some(now)) if now > was => {
            out.push(FieldError::invalid(
                &at,
                now,
                "must be less than or equal to previous value",
            ));
            return false;
        }
        _ => {}
    }
    true
}

/// The new spec with its mutable fields reset to the old ones, so that only forbidden changes remain. A `gated` pod
/// may also change where it runs.
fn with_mutable_parts_of(new: &Value, old: &Value, gated: bool) -> Value {
    let mut spec = new.clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut spec, old, &[key]);
    }
    // Negative ones were once accepted.
    let grace = |v: &Value| v.get("terminationGracePeriodSeconds").as_i64();
    if grace(old).is_some_and(|n| n < 0) && grace(new) == Some(1) {
        restore(&mut spec, old, &["terminationGracePeriodSeconds"]);
    }
    if gated {
        // `gated::places` has compared the required part; preferences are free to change.
        restore(&mut spec, old, &["nodeSelector"]);
        restore(&mut spec, old, &["affinity", "nodeAffinity"]);
        // An affinity that the update added for its node affinity alone.
        if old.get("affinity").is_null() && spec.get("affinity").is_empty_value() {
            spec.unset(&["affinity"]);
        }
    }
    for list in ["containers", "initContainers"] {
        // Upstream rebuilds these lists, so that empty ones are absent.
        if spec.get(list).items().is_empty() {
            spec.unset(&[list]);
        }
        let was = old.get(list).items();
        // The lists have equal lengths: `pod_update` has returned otherwise.
        for (c, o) in elements_mut(&mut spec, &[list]).zip(was) {
            restore(c, o, &["image"]);
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn valid() -> Value {
        let mut v = json!({"spec": {"containers": [{"name": "main", "image": "a:1"}]}});
        crate::controlplane::defaults::pod::pod(&mut v);
        v
    }

    #[test]
    fn minimal_pod_is_valid_and_empty_one_is_not() {
        assert_eq!(aggregate(&pod(&valid())), "[]");
        let mut v = valid();
        v.set(&["spec", "containers"], json!([]));
        assert_eq!(aggregate(&pod(&v)), "spec.containers: Required value");
        v.set(&["spec", "containers"], json!([{"name": "A"}]));
        let errors = aggregate(&pod(&v));
        assert!(
            errors.contains("spec.containers[0].name: Invalid value: \"A\"")
                && errors.contains("spec.containers[0].image: Required value")
        );
    }

    #[test]
    fn tolerations_are_checked_again_only_if_none_was_modified() {
        let count = |old: &Value, new: &Value| {
            let errors = pod_update(new, old);
            let texts = errors.iter().map(ToString::to_string);
            texts
                .filter(|text| text.starts_with("spec.tolerations[0].operator: Unsupported value"))
                .count()
        };
        let mut old = valid();
        old.set(&["spec", "tolerations"], json!([{"key": "a", "operator": "Exists"}]));
        let mut new = old.clone();
        new.set(&["spec", "tolerations"], json!([{"key": "a", "operator": "Other"}]));
        assert_eq!(count(&old, &new), 1);
        assert_eq!(count(&valid(), &new), 2);
    }

    #[test]
    fn a_gated_pod_may_gain_and_lose_a_node_affinity() {
        let mut gated = valid();
        gated.set(&["spec", "schedulingGates"], json!([{"name": "a.b/c"}]));
        let mut placed = gated.clone();
        let preference =
            json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}]);
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        placed.set(&["spec", "affinity", "nodeAffinity", preferred], preference);
        placed.set(&["spec", "nodeSelector", "a"], "b");
        assert_eq!(aggregate(&pod_update(&placed, &gated)), "[]");
        let mut moved = placed.clone();
        moved.unset(&["spec", "affinity"]);
        assert_eq!(aggregate(&pod_update(&moved, &placed)), "[]");
        let mut free = valid();
        free.set(&["spec", "affinity"], placed.at(&["spec", "affinity"]).clone());
        assert!(aggregate(&pod_update(&free, &valid())).starts_with("spec: Forbidden: pod updates may not change"));
    }

    #[test]
    fn a_later_deadline_is_the_only_error() {
        let mut old = valid();
        old.set(&["spec", "activeDeadlineSeconds"], 5i64);
        let mut new = old.clone();
        new.set(&["spec", "activeDeadlineSeconds"], 6i64);
        new.set(&["spec", "hostname"], "x");
        assert_eq!(
            aggregate(&pod_update(&new, &old)),
            "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"
        );
    }

    #[test]
    fn images_are_checked_before_the_init_containers_are_counted() {
        let old = valid();
        let mut new = old.clone();
        for (image, want) in [
            ("", "spec.containers[0].image: Required value"),
            (
                " a",
                "spec.containers[0].image: Invalid value: \" a\": must not have leading or trailing whitespace",
            ),
        ] {
            for c in elements_mut(&mut new, &["spec", "containers"]) {
                c.set(&["image"], image);
            }
            new.set(&["spec", "initContainers"], json!([{"name": "i", "image": "a"}]));
            let errors: Vec<String> = pod_update(&new, &old).iter().map(ToString::to_string).collect();
            assert_eq!(errors.iter().filter(|e| *e == want).count(), 2, "{errors:?}");
            let last = "spec.initContainers: Forbidden: pod updates may not add or remove containers";
            assert_eq!(errors.last().map(String::as_str), Some(last));
        }
    }

    #[test]
    fn a_repeated_new_gate_is_reported_at_its_last_place() {
        let gates = |names: &[&str]| {
            let mut v = json!({});
            let gates: Vec<Value> = names.iter().map(|name| json!({"name": (*name)})).collect();
            v.set(&["spec", "schedulingGates"], gates);
            v
        };
        let (old, new) = (gates(&["a/b"]), gates(&["a/b", "c/d", "e/f", "c/d"]));
        let mut out = ErrorList::new();
        let had = old.at(&["spec", "schedulingGates"]).items();
        added_gates(&mut out, &new, had, &FieldPath::new("g"));
        let why = "Forbidden: only deletion is allowed, but found new scheduling gate";
        assert_eq!(
            aggregate(&out),
            format!("[g[2].name: {why} 'e/f', g[3].name: {why} 'c/d']")
        );
    }

    #[test]
    fn annotations_are_checked_twice_on_update() {
        let old = valid();
        let mut new = old.clone();
        new.set(
            &["metadata", "annotations", "controller.kubernetes.io/pod-deletion-cost"],
            "+1",
        );
        assert_eq!(pod_update(&new, &old).len(), 2);
    }

    #[test]
    fn a_quantity_may_be_written_in_another_way() {
        let with = |cpu: &str| {
            let mut v = json!({"spec": {"containers": [{"name": "main", "image": "a:1",
                "resources": {"limits": {"cpu": (cpu)}}}]}});
            crate::controlplane::defaults::pod::pod(&mut v);
            v
        };
        assert_eq!(aggregate(&pod_update(&with("1"), &with("1000m"))), "[]");
        assert_ne!(aggregate(&pod_update(&with("2"), &with("1000m"))), "[]");
    }

    #[test]
    fn image_is_mutable_and_hostname_is_not() {
        let old = valid();
        let mut new = old.clone();
        new.set(&["spec", "containers"], json!([{"name": "main", "image": "a:2", "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}]));
        assert_eq!(aggregate(&pod_update(&new, &old)), "[]");
        new.set(&["spec", "hostname"], "x");
        assert!(
            aggregate(&pod_update(&new, &old))
                .starts_with("spec: Forbidden: pod updates may not change fields other than")
        );
    }
}
