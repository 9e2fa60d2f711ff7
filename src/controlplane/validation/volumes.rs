//! Validation of PersistentVolumes and PersistentVolumeClaims, and of claim and volume specs embedded elsewhere.

use super::common::{is_positive, quantity};
use super::go_form;
use super::sources::{self, SourceOwner};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, qualified_name};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each, label_selector, optional_choice, restore, same, strings};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Sources of a PersistentVolume, in upstream's order.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const BETA_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

fn access_modes(out: &mut ErrorList, spec: &Value, path: &FieldPath, missing: &str) {
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
    let shared = modes.iter().any(|m| *m != "ReadWriteOncePod" && MODES.contains(m));
    if shared && modes.contains(&"ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        out.push(FieldError::forbidden(&at, why));
    }
}

fn class_name(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let class = spec.str_at(&["storageClassName"]);
    if !class.is_empty() {
        invalid_each(out, &path.child("storageClassName"), class, dns1123_subdomain(class));
    }
}

fn volume_mode(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    optional_choice(out, spec, "volumeMode", path, &["Block", "Filesystem"]);
}

/// Reports a negative quantity. As upstream, the bad value is rounded to an integer.
fn amount(out: &mut ErrorList, q: &Value, at: &FieldPath) {
    if let Some(n) = quantity(q).map(|q| q.value()).filter(|n| *n < 0) {
        out.push(FieldError::invalid(at, n, "must be a valid resource quantity"));
    }
}

fn positive(out: &mut ErrorList, q: &Value, at: &FieldPath) {
    if quantity(q).is_some_and(|q| !is_positive(q)) {
        out.push(FieldError::invalid(at, q.clone(), "must be greater than zero"));
    }
}

pub(crate) fn persistent_volume(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    access_modes(&mut out, spec, &path, "");
    capacity(&mut out, spec.get("capacity"), &path.child("capacity"));
    let policy = spec.str_at(&["persistentVolumeReclaimPolicy"]);
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        out.push(FieldError::not_supported(
            &path.child("persistentVolumeReclaimPolicy"),
            policy,
            &["Delete", "Recycle", "Retain"],
        ));
    }
    let (affinity, at) = (spec.get("nodeAffinity"), path.child("nodeAffinity").child("required"));
    if !affinity.get("required").is_null() {
        super::pod::node_selector(&mut out, affinity.get("required"), &at);
    } else if !affinity.is_null() {
        out.push(FieldError::required(&at, "must specify required node constraints"));
    }
    source(&mut out, spec, &path, v.name());
    recycled_root(&mut out, spec, &path);
    class_name(&mut out, spec, &path);
    volume_mode(&mut out, spec, &path);
    if let Some(class) = spec.get("volumeAttributesClassName").as_str() {
        let at = path.child("volumeAttributesClassName");
        if class.is_empty() {
            out.push(FieldError::required(&at, "an empty string is disallowed"));
        } else {
            invalid_each(&mut out, &at, class, dns1123_subdomain(class));
        }
        if spec.get("csi").is_null() {
            out.push(FieldError::required(
                &path.child("csi"),
                "has to be specified when using volumeAttributesClassName",
            ));
        }
    }
    out
}

fn capacity(out: &mut ErrorList, capacity: &Value, at: &FieldPath) {
    if capacity.is_empty_value() {
        out.push(FieldError::required(at, ""));
    }
    let count = capacity.as_object().map_or(0, |m| m.len());
    if count != 1 || capacity.get("storage").is_null() {
        let mut e = FieldError::not_supported(at, Value::Null, &["storage"]);
        if count > 0 {
            e.bad_value = Some(show(capacity));
        }
        out.push(e);
    }
    for (key, q) in capacity.as_object().into_iter().flat_map(|m| m.iter()) {
        amount(out, q, &at.key(key));
        positive(out, q, &at.key(key));
    }
}

/// Rejects `Recycle` for a `hostPath` of `/`, which would erase the node's root.
fn recycled_root(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let root = |path: &str| path.starts_with('/') && path.split('/').all(|p| matches!(p, "" | "."));
    let recycled = spec.str_at(&["persistentVolumeReclaimPolicy"]) == "Recycle";
    if recycled && root(spec.str_at(&["hostPath", "path"])) {
        out.push(FieldError::forbidden(
            &path.child("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
}

/// Validates a volume spec embedded in a VolumeAttachment (`inlineVolumeSpec`).
pub(super) fn inline_volume(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    const NOT_INLINE: &str = "may not be specified in the context of inline volumes";
    let forbid_set = |out: &mut ErrorList, key: &str| {
        if !spec.get(key).is_empty_value() {
            out.push(FieldError::forbidden(&path.child(key), NOT_INLINE));
        }
    };
    forbid_set(out, "claimRef");
    forbid_set(out, "capacity");
    if spec.get("csi").is_null() {
        let why = "has to be specified in the context of inline volumes";
        out.push(FieldError::required(&path.child("csi"), why));
    }
    access_modes(out, spec, path, "");
    if !matches!(spec.str_at(&["persistentVolumeReclaimPolicy"]), "" | "Retain") {
        let why = "may only be Retain in the context of inline volumes";
        out.push(FieldError::forbidden(&path.child("persistentVolumeReclaimPolicy"), why));
    }
    forbid_set(out, "nodeAffinity");
    source(out, spec, path, "");
    recycled_root(out, spec, path);
    forbid_set(out, "storageClassName");
    if !matches!(spec.get("volumeMode").as_str(), None | Some("Filesystem")) {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        out.push(FieldError::forbidden(&path.child("volumeMode"), why));
    }
}

fn source(out: &mut ErrorList, spec: &Value, path: &FieldPath, name: &str) {
    let sources: Vec<&&str> = SOURCES.iter().filter(|s| !spec.get(s).is_null()).collect();
    for (i, key) in sources.iter().enumerate() {
        // As upstream, a flex volume is not reported as a second source.
        if i > 0 && **key != "flexVolume" {
            let field = if **key == "cephfs" { "cephFS" } else { key };
            let why = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&path.child(field), why));
            continue;
        }
        sources::source(out, spec, key, path, SourceOwner::Persistent(name));
        if **key == "local" && spec.get("nodeAffinity").is_null() {
            let why = "Local volume requires node affinity";
            out.push(FieldError::required(&path.child("nodeAffinity"), why));
        }
    }
    if sources.is_empty() {
        out.push(FieldError::required(path, "must specify a volume type"));
    }
}

pub(crate) fn persistent_volume_update(new: &Value, old: &Value) -> ErrorList {
    // As upstream, the volume is validated twice on update, so causes repeat.
    let mut out = persistent_volume(new);
    out.extend(persistent_volume(new));
    let (was, mut now) = (old.get("spec"), new.get("spec").clone());
    let secret = ["csi", "controllerExpandSecretRef"];
    // This secret may be added to an existing CSI source.
    if !was.get("csi").is_null() && was.at(&secret).is_null() {
        now.unset(&secret);
    }
    if SOURCES.iter().any(|s| was.get(s) != now.get(s)) {
        let difference = go_form::difference(was, &now, go_form::PERSISTENT);
        out.push(FieldError::forbidden(
            &FieldPath::new("spec").child("persistentvolumesource"),
            format!("spec.persistentvolumesource is immutable after creation{difference}"),
        ));
    }
    let (mode, affinity) = (["spec", "volumeMode"], ["spec", "nodeAffinity"]);
    if new.at(&mode) != old.at(&mode) {
        let at = FieldPath::new("volumeMode");
        out.push(FieldError::invalid(&at, new.at(&mode).clone(), IMMUTABLE));
    }
    if !old.at(&affinity).is_null() && new.at(&affinity) != old.at(&affinity) {
        let shown = match new.at(&affinity) {
            Value::Null => "null".to_owned(),
            affinity => go_form::compact(affinity, go_form::VOLUME_NODES),
        };
        let why = "field is immutable, except for updating from beta label to GA";
        out.push(FieldError::invalid_raw(&FieldPath::new("nodeAffinity"), shown, why));
    }
    let class = ["spec", "volumeAttributesClassName"];
    if !old.at(&class).is_null() && new.at(&class).is_null() {
        out.push(FieldError::forbidden(
            &FieldPath::new("spec").child("volumeAttributesClassName"),
            "update from non-nil value to nil is forbidden",
        ));
    }
    out
}

fn class_warning(v: &Value) -> Option<String> {
    v.annotation(BETA_CLASS).map(|_| {
        format!("metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead")
    })
}

pub(crate) fn persistent_volume_warnings(v: &Value) -> Vec<String> {
    let mut out: Vec<String> = class_warning(v).into_iter().collect();
    if v.annotation(BETA_OPTIONS).is_some() {
        out.push(format!(
            "metadata.annotations[{BETA_OPTIONS}]: deprecated since v1.31; use \"mountOptions\" attribute instead"
        ));
    }
    if v.str_at(&["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        out.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let terms = v.at(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    for (i, term) in terms.items().iter().enumerate() {
        for (j, e) in term.get("matchExpressions").items().iter().enumerate() {
            let key = e.str_at(&["key"]);
            if let Some(text) = super::pod::deprecated_label(key) {
                out.push(format!(
                    "spec.nodeAffinity.required.nodeSelectorTerms[{i}].matchExpressions[{j}].key: {key} is {text}"
                ));
            }
        }
    }
    for (key, path, since, gone) in [
        ("cephfs", "cephfs", "v1.28", "v1.31"),
        ("photonPersistentDisk", "photonPersistentDisk", "v1.11", "v1.16"),
        ("scaleIO", "scaleIO", "v1.16", "v1.22"),
        ("storageos", "storageOS", "v1.22", "v1.25"),
        ("glusterfs", "glusterfs", "v1.25", "v1.26"),
        ("rbd", "rbd", "v1.28", "v1.31"),
    ] {
        if !v.at(&["spec", key]).is_null() {
            out.push(format!("spec.{path}: deprecated in {since}, non-functional in {gone}+"));
        }
    }
    out
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
    label_selector(out, spec.get("selector"), &path.child("selector"));
    if !strings(spec.get("accessModes")).is_empty() {
        access_modes(out, spec, path, "");
    }
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
    let capacity = size(new, &["status", "capacity", "storage"]);
    let (now, was) = (size(new, &request), size(old, &request));
    if now < was && now <= capacity {
        let at = path.child("resources").child("requests").child("storage");
        out.push(FieldError::forbidden(&at, "field can not be less than status.capacity"));
    }
    let mode = ["spec", "volumeMode"];
    if new.at(&mode) != old.at(&mode) {
        let at = FieldPath::new("volumeMode");
        out.push(FieldError::invalid(&at, new.at(&mode).clone(), IMMUTABLE));
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
            && new.annotation(BETA_CLASS).is_none_or(|now| now == annotated)
    })
}

fn class_annotation(out: &mut ErrorList, new: &Value, old: &Value) {
    let of = |v: &Value| v.annotation(BETA_CLASS).unwrap_or("").to_owned();
    if !class_moves(new, old) && of(new) != of(old) {
        let at = FieldPath::new("metadata").child("annotations").child(BETA_CLASS);
        out.push(FieldError::invalid(&at, of(new).as_str(), IMMUTABLE));
    }
}

/// The new spec with its mutable fields reset to the old ones, so that any difference is forbidden.
fn comparable_spec(new: &Value, old: &Value) -> Value {
    let (mut spec, was) = (new.get("spec").clone(), old.get("spec"));
    let class = spec.get("storageClassName").as_str().unwrap_or("").to_owned();
    let chosen = was.get("storageClassName").is_null()
        && !spec.get("storageClassName").is_null()
        && old.annotation(BETA_CLASS).is_none_or(|annotated| annotated == class);
    if chosen {
        spec.unset(&["storageClassName"]);
    }
    if new.str_at(&["status", "phase"]) == "Bound" {
        if !spec.at(&["resources", "requests"]).is_null() {
            restore(&mut spec, was, &["resources", "requests", "storage"]);
        }
        restore(&mut spec, was, &["volumeAttributesClassName"]);
    }
    spec
}

/// Checks the name of a resource in a claim's status: `storage` or an extended one. Returns true if it is valid.
fn claim_resource(out: &mut ErrorList, name: &str, at: &FieldPath) -> bool {
    let messages = qualified_name(name);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if !messages.is_empty() {
        invalid_each(out, at, name, messages);
    } else if native && name != "storage" {
        out.push(FieldError::not_supported(at, name, &["storage"]));
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
        if quantity(q).is_some_and(|q| !super::common::is_whole(q)) {
            out.push(format!(
                "{path}.resources.{side}[storage]: fractional byte value {} is invalid, must be an integer",
                show(q)
            ));
        }
    }
    out
}

/// Checks the reclaim policy of a StorageClass.
pub(super) fn reclaim_policy(out: &mut ErrorList, v: &Value) {
    if !v.str_at(&["reclaimPolicy"]).is_empty() {
        optional_choice(out, v, "reclaimPolicy", &FieldPath::default(), &["Delete", "Retain"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn volume(changes: Value) -> String {
        let mut v = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}});
        for (k, value) in changes.as_object().unwrap().iter() {
            v.set(&["spec", k], value.clone());
        }
        aggregate(&persistent_volume(&v))
    }

    #[test]
    fn volume_errors_match_the_recordings() {
        for (changes, want) in [
            (json!({}), "[]"),
            (
                json!({"capacity": null}),
                "[spec.capacity: Required value, spec.capacity: Unsupported value: null: supported values: \"storage\"]",
            ),
            (json!({"accessModes": []}), "spec.accessModes: Required value"),
            (
                json!({"nfs": {"server": "s", "path": "/p"}}),
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ),
            (
                json!({"hostPath": null}),
                "spec: Required value: must specify a volume type",
            ),
            (
                json!({"capacity": {"storage": "0"}}),
                "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
            ),
            (
                json!({"hostPath": null, "local": {"path": "/x"}}),
                "spec.nodeAffinity: Required value: Local volume requires node affinity",
            ),
        ] {
            assert_eq!(volume(changes), want);
        }
    }

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
