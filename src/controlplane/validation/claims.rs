//! Validation of PersistentVolumeClaims, of claim specs embedded elsewhere, and of the fields that claims
//! share with PersistentVolumes.

use super::common::{is_positive, quantity};
use super::go_form;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show};
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each, optional_choice, same, selector_check, strings};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn access_modes(out: &mut ErrorList, spec: &Value, path: &FieldPath, missing: &str) {
    let at = path.child("accessModes");
    let modes = strings(spec.get("accessModes"));
    if modes.is_empty() {
        out.push(FieldError::required(&at, missing));
    }
    for mode in &modes {
        if !MODES.contains(mode) {
            out.push(FieldError::not_supported(&at, *mode, MODES));
        }
    }
    // Unsupported modes do not count as another mode: they have been reported above.
    let shared = modes.iter().any(|m| *m != "ReadWriteOncePod" && MODES.contains(m));
    if shared && modes.contains(&"ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        out.push(FieldError::forbidden(&at, why));
    }
}

pub(super) fn class_name(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let class = spec.str_at(&["storageClassName"]);
    // `""` is valid and differs from an absent class: it opts out of the default StorageClass.
    if !class.is_empty() {
        invalid_each(out, &path.child("storageClassName"), class, dns1123_subdomain(class));
    }
}

pub(super) fn volume_mode(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    optional_choice(out, spec, "volumeMode", path, &["Block", "Filesystem"]);
}

/// Reports a negative quantity. As upstream, the bad value is rounded to an integer.
pub(super) fn amount(out: &mut ErrorList, q: &Value, at: &FieldPath) {
    if let Some(n) = quantity(q).map(|q| q.value()).filter(|n| *n < 0) {
        out.push(FieldError::invalid(at, n, "must be a valid resource quantity"));
    }
}

pub(super) fn positive(out: &mut ErrorList, q: &Value, at: &FieldPath) {
    if quantity(q).is_some_and(|q| !is_positive(q)) {
        out.push(FieldError::invalid(at, q.clone(), "must be greater than zero"));
    }
}

pub(super) fn class_warning(v: &Value) -> Option<String> {
    v.annotation(BETA_CLASS).map(|_| {
        format!("metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead")
    })
}

pub(crate) fn claim(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    claim_spec(&mut out, v.get("spec"), &FieldPath::new("spec"), &Value::Null);
    out
}

/// Validates a claim's spec, also in templates; `old` is the stored spec on update, else null.
pub(super) fn claim_spec(out: &mut ErrorList, spec: &Value, path: &FieldPath, old: &Value) {
    if strings(spec.get("accessModes")).is_empty() {
        let why = "at least 1 access mode is required";
        out.push(FieldError::required(&path.child("accessModes"), why));
    }
    selector_check([old.get("selector")])(out, spec.get("selector"), &path.child("selector"));
    // Separate from the check for an empty list above because upstream validates the selector in between.
    if !strings(spec.get("accessModes")).is_empty() {
        access_modes(out, spec, path, "");
    }
    // The path is upstream's: it omits `requests`.
    let at = path.child("resources").key("storage");
    match spec.at(&["resources", "requests", "storage"]) {
        Value::Null => out.push(FieldError::required(&at, "")),
        q => positive(out, q, &at),
    }
    class_name(out, spec, path);
    volume_mode(out, spec, path);
    for key in ["dataSource", "dataSourceRef"] {
        data_source(out, spec.get(key), &path.child(key), old);
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    if !source.is_null() && !reference.is_null() {
        let differs = ["apiGroup", "kind", "name"]
            .iter()
            .any(|k| source.get(k) != reference.get(k));
        if !reference.str_at(&["namespace"]).is_empty() {
            let why = "may not be specified when dataSourceRef.namespace is specified";
            // Upstream passes the field path as the value by mistake, which prints as `{}`.
            out.push(FieldError::invalid_raw(path, "{}", why));
        } else if differs {
            out.push(FieldError::invalid_raw(path, "{}", "must match dataSourceRef"));
        }
    }
    let class = spec.str_at(&["volumeAttributesClassName"]);
    if !class.is_empty() {
        let at = path.child("volumeAttributesClassName");
        invalid_each(out, &at, class, dns1123_subdomain(class));
    }
}

fn data_source(out: &mut ErrorList, v: &Value, at: &FieldPath, old: &Value) {
    if v.is_null() {
        return;
    }
    for key in ["name", "kind"] {
        if v.str_at(&[key]).is_empty() {
            out.push(FieldError::required(&at.child(key), ""));
        }
    }
    let (group, kind) = (v.str_at(&["apiGroup"]), v.str_at(&["kind"]));
    // Volume snapshots and other sources always have a group.
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        out.push(FieldError::invalid(
            at,
            kind,
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ));
    }
    // Ratcheting: an API group that is already stored is not checked again.
    let had = ["dataSource", "dataSourceRef"]
        .iter()
        .any(|k| !old.at(&[k, "apiGroup"]).is_null());
    if !group.is_empty() && !had {
        invalid_each(out, &at.child("apiGroup"), group, dns1123_subdomain(group));
    }
    let space = v.str_at(&["namespace"]);
    if !space.is_empty() {
        invalid_each(out, &at.child("namespace"), space, dns1123_label(space));
    }
}

pub(crate) fn claim_update(new: &Value, old: &Value) -> ErrorList {
    let path = FieldPath::new("spec");
    let mut out = ErrorList::new();
    claim_spec(&mut out, new.get("spec"), &path, old.get("spec"));
    class_annotation(&mut out, new, old);
    let (was, now) = (old.get("spec"), comparable_spec(new, old));
    // The old spec is adapted to the new one rather than the reverse: the difference below is printed from
    // `before`.
    let mut before = was.clone();
    // An unbound claim may still be bound.
    if before.str_at(&["volumeName"]).is_empty() {
        restore(&mut before, &now, &["volumeName"]);
    }
    if !same(&now, &before) {
        let difference = go_form::difference(&before, &now, go_form::CLAIM_SPEC);
        out.push(FieldError::forbidden(
            &path,
            format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims{difference}"),
        ));
    }
    let size = |v: &Value, p: &[&str]| quantity(v.at(p)).unwrap_or(Quantity::ZERO);
    let request = ["spec", "resources", "requests", "storage"];
    // Lowering a request is allowed down to just above the capacity: this undoes an expansion that has not
    // succeeded (`RecoverVolumeExpansionFailure`).
    let capacity = size(new, &["status", "capacity", "storage"]);
    let (now, was) = (size(new, &request), size(old, &request));
    if now < was && now <= capacity {
        let at = path.child("resources").child("requests").child("storage");
        out.push(FieldError::forbidden(&at, "field can not be less than status.capacity"));
    }
    let mode = ["spec", "volumeMode"];
    if new.at(&mode) != old.at(&mode) {
        // Upstream's path lacks `spec`.
        let at = FieldPath::new("volumeMode");
        out.push(FieldError::invalid_enum(&at, new.at(&mode).clone(), IMMUTABLE));
    }
    let class = ["spec", "volumeAttributesClassName"];
    let current = old.at(&["status", "currentVolumeAttributesClassName"]);
    if new.at(&class) != old.at(&class) && !current.is_null() && new.str_at(&class).is_empty() {
        let what = if new.at(&class).is_null() {
            "nil"
        } else {
            "empty string"
        };
        out.push(FieldError::forbidden(
            &path.child("volumeAttributesClassName"),
            format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"),
        ));
    }
    out
}

/// True if the update moves the storage class from the beta annotation to the field.
fn class_moves(new: &Value, old: &Value) -> bool {
    let class = ["spec", "storageClassName"];
    old.annotation(BETA_CLASS).is_some_and(|annotated| {
        old.at(&class).is_null()
            && new.at(&class).as_str() == Some(annotated)
            // The annotation may be removed at the same time, but not point elsewhere.
            && new.annotation(BETA_CLASS).is_none_or(|now| now == annotated)
    })
}

fn class_annotation(out: &mut ErrorList, new: &Value, old: &Value) {
    let of = |v: &Value| v.annotation(BETA_CLASS).unwrap_or("").to_owned();
    if !class_moves(new, old) && of(new) != of(old) {
        // `child`, not `key`: upstream joins the annotation with a dot.
        let at = FieldPath::new("metadata").child("annotations").child(BETA_CLASS);
        out.push(FieldError::invalid(&at, of(new).as_str(), IMMUTABLE));
    }
}

/// The new spec with its mutable fields reset to the old ones, so that any difference is forbidden.
fn comparable_spec(new: &Value, old: &Value) -> Value {
    let (mut spec, was) = (new.get("spec").clone(), old.get("spec"));
    let class = spec.get("storageClassName").as_str().unwrap_or("").to_owned();
    // An unset class may be filled in later: the volume controller assigns a default class retroactively.
    let chosen = was.get("storageClassName").is_null()
        && !spec.get("storageClassName").is_null()
        && old.annotation(BETA_CLASS).is_none_or(|annotated| annotated == class);
    if chosen {
        spec.unset(&["storageClassName"]);
    }
    // The status is the stored one here: the strategy has restored it, so a client cannot claim to be bound.
    if new.str_at(&["status", "phase"]) == "Bound" {
        // Without this guard a removed `requests` would be restored too, and its removal go unnoticed.
        if !spec.at(&["resources", "requests"]).is_null() {
            restore(&mut spec, was, &["resources", "requests", "storage"]);
        }
        restore(&mut spec, was, &["volumeAttributesClassName"]);
    }
    spec
}

/// Checks the name of a resource in a claim's status: `storage` or an extended one. Returns true if it is
/// valid.
fn claim_resource(out: &mut ErrorList, name: &str, at: &FieldPath) -> bool {
    let messages = qualified_name(name);
    // As `IsNativeResource` upstream, which searches the whole name, not only its prefix.
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if !messages.is_empty() {
        invalid_each(out, at, name, messages);
    } else if native && name != "storage" {
        out.push(FieldError::not_supported_string(at, name, &["storage"]));
    } else {
        return true;
    }
    false
}

pub(crate) fn claim_status(new: &Value, _old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (path, status) = (FieldPath::new("status"), new.get("status"));
    const PHASES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let entries = |key: &str| {
        let all = status.get(key).as_object();
        all.into_iter().flat_map(|m| m.iter())
    };
    for (key, q) in entries("capacity") {
        amount(&mut out, q, &path.child("capacity").key(key));
    }
    let at = path.child("allocatedResourceStatuses");
    for (key, phase) in entries("allocatedResourceStatuses") {
        // The key is reported at the map itself, and as the bad value of a wrong phase: both are upstream's.
        claim_resource(&mut out, key, &at);
        if !phase.as_str().is_some_and(|p| PHASES.contains(&p)) {
            out.push(FieldError::not_supported(&at, key, PHASES));
        }
    }
    let at = path.child("allocatedResources");
    for (key, q) in entries("allocatedResources") {
        if claim_resource(&mut out, key, &at) {
            amount(&mut out, q, &at.key(key));
        }
    }
    out
}

pub(crate) fn claim_warnings(v: &Value) -> Vec<String> {
    let mut out: Vec<String> = class_warning(v).into_iter().collect();
    out.extend(claim_spec_warnings(v.get("spec"), "spec"));
    out
}

/// Warnings about the spec of a claim or claim template.
pub(crate) fn claim_spec_warnings(spec: &Value, path: &str) -> Vec<String> {
    let mut out = Vec::new();
    for side in ["requests", "limits"] {
        let q = spec.at(&["resources", side, "storage"]);
        // Only a warning, as upstream: an error would break manifests that have always been accepted.
        if quantity(q).is_some_and(|q| !super::common::is_whole(q)) {
            out.push(format!(
                "{path}.resources.{side}[storage]: fractional byte value {} is invalid, must be an integer",
                show(q)
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn claim_errors_match_the_recordings() {
        let errors = |spec: Value| {
            let mut v = json!({});
            v.set(&["spec"], spec);
            aggregate(&claim(&v))
        };
        assert_eq!(
            errors(json!({"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}})),
            "spec.accessModes: Required value: at least 1 access mode is required"
        );
        assert_eq!(
            errors(json!({"accessModes": ["ReadWriteOnce"]})),
            "spec.resources[storage]: Required value"
        );
    }

    #[test]
    fn allocated_resources_are_amounts_of_storage() {
        let errors = |key: &str, amount: &str| {
            let mut v = json!({});
            v.set(&["status", "allocatedResources", key], amount);
            aggregate(&claim_status(&v, &v))
        };
        let at = "status.allocatedResources";
        assert_eq!(errors("storage", "1Gi"), "[]");
        assert_eq!(
            errors("storage", "-2"),
            format!("{at}[storage]: Invalid value: -2: must be a valid resource quantity")
        );
        assert_eq!(
            errors("pods", "1"),
            format!("{at}: Unsupported value: \"pods\": supported values: \"storage\"")
        );
    }

    #[test]
    fn bound_claim_can_be_expanded() {
        let old = json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}},
                         "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        let mut new = old.clone();
        new.set(&["spec", "resources", "requests", "storage"], "2Gi");
        assert_eq!(aggregate(&claim_update(&new, &old)), "[]");
        new.set(&["status", "phase"], "Pending");
        assert!(aggregate(&claim_update(&new, &old)).starts_with("spec: Forbidden: spec is immutable"));
    }
}
