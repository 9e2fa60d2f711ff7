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
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::meta;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, elements_mut, restore, same};
pub(super) use affinity::node_selector;
pub(super) use env::{VOLUME_FIELDS, field_ref, resource_ref};
pub(crate) use parts::{ephemeral_containers_update, resize};
pub(super) use resources::{Claims, container as container_resources};
pub(super) use spec::toleration;
pub(crate) use status::pod_status;
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
    /// A pod template.
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
        if new.at(&["spec", key]).items().len() != old.at(&["spec", key]).items().len() {
            out.push(FieldError::forbidden(
                &path.child(key),
                "pod updates may not add or remove containers",
            ));
            // The comparisons below pair containers by position, so they need lists of equal length.
            return out;
        }
    }
    for key in ["containers", "initContainers"] {
        for (i, c) in new.at(&["spec", key]).items().iter().enumerate() {
            // As upstream, reported a second time: `checked_spec` has already done so.
            if c.str_at(&["image"]).is_empty() {
                out.push(FieldError::required(&path.child(key).index(i).child("image"), ""));
            }
        }
    }
    deadline(&mut out, new, old, &path);
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
    let gates: Seen<&str> = had.iter().map(|g| g.str_at(&["name"])).collect();
    for (i, g) in new.at(&["spec", "schedulingGates"]).items().iter().enumerate() {
        let name = g.str_at(&["name"]);
        if !gates.contains(&name) {
            out.push(FieldError::forbidden(
                &path.child("schedulingGates").index(i).child("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
    // By the stored pod: removing the last gate in the same update still allows to change where it runs.
    let gated = !had.is_empty();
    if gated {
        gated::places(&mut out, new.get("spec"), old.get("spec"), &path);
    }
    // Two different copies: for the comparison mutable fields are removed, but the printed diff must have every
    // field, or its line numbers would be wrong.
    if !same(&immutable_part(new, gated), &immutable_part(old, gated)) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        let (was, now) = (
            go_form::pod_spec(old.get("spec")),
            go_form::pod_spec(&with_mutable_parts_of(new, old)),
        );
        let difference = go_form::difference(&was, &now, go_form::POD_SPEC);
        out.push(FieldError::forbidden(&path, format!("{why}{difference}")));
    }
    out
}

fn deadline(out: &mut ErrorList, new: &Value, old: &Value, path: &FieldPath) {
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
        }
        // A deadline can only be moved up: the kubelet may already have acted on it.
        (Some(was), Some(now)) if now > was => {
            out.push(FieldError::invalid(
                &at,
                now,
                "must be less than or equal to previous value",
            ));
        }
        _ => {}
    }
}

/// The new spec with its mutable fields reset to the old ones, so that a diff shows only the forbidden
/// changes.
fn with_mutable_parts_of(new: &Value, old: &Value) -> Value {
    let mut spec = new.get("spec").clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut spec, old.get("spec"), &[key]);
    }
    for list in ["containers", "initContainers"] {
        let was = old.at(&["spec", list]).items();
        // The lists have equal lengths: `pod_update` has returned otherwise.
        for (c, o) in elements_mut(&mut spec, &[list]).zip(was) {
            restore(c, o, &["image"]);
        }
    }
    spec
}

/// The spec without its mutable fields; a `gated` pod may also change where it runs.
fn immutable_part(v: &Value, gated: bool) -> Value {
    let mut spec = v.get("spec").clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        spec.unset(&[key]);
    }
    if gated {
        spec.unset(&["nodeSelector"]);
        // Its required part has been compared by `gated::places`; preferences are free to change.
        spec.unset(&["affinity", "nodeAffinity"]);
    }
    for list in ["containers", "initContainers"] {
        for c in elements_mut(&mut spec, &[list]) {
            c.unset(&["image"]);
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
