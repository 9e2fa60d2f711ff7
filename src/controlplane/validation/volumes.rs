//! PersistentVolumes and PersistentVolumeClaims.

use super::common::{is_positive, quantity};
use super::internal;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, invalid_each, label_selector, required_choice, same, strings};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Sources of a volume, in the order upstream looks at them.
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
    if modes.len() > 1 && modes.contains(&"ReadWriteOncePod") {
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
    let mode = spec.str_at(&["volumeMode"]);
    if !matches!(mode, "" | "Block" | "Filesystem") {
        out.push(FieldError::not_supported(
            &path.child("volumeMode"),
            mode,
            &["Block", "Filesystem"],
        ));
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
    let (capacity, at) = (spec.get("capacity"), path.child("capacity"));
    if capacity.is_empty_value() {
        out.push(FieldError::required(&at, ""));
    }
    let count = capacity.as_object().map_or(0, |m| m.len());
    if count != 1 || capacity.get("storage").is_null() {
        let mut e = FieldError::not_supported(&at, Value::Null, &["storage"]);
        if count > 0 {
            e.bad_value = Some(show(capacity));
        }
        out.push(e);
    }
    for (key, q) in capacity.as_object().into_iter().flat_map(|m| m.iter()) {
        positive(&mut out, q, &at.key(key));
    }
    let policy = spec.str_at(&["persistentVolumeReclaimPolicy"]);
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        out.push(FieldError::not_supported(
            &path.child("persistentVolumeReclaimPolicy"),
            policy,
            &["Delete", "Recycle", "Retain"],
        ));
    }
    let affinity = spec.at(&["nodeAffinity", "required"]);
    if !affinity.is_null() {
        let at = path.child("nodeAffinity").child("required");
        super::pod::node_selector(&mut out, affinity, &at);
    }
    source(&mut out, spec, &path);
    if spec.str_at(&["hostPath", "path"]) == "/" && policy == "Recycle" {
        out.push(FieldError::forbidden(
            &path.child("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
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

fn source(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let said: Vec<&&str> = SOURCES.iter().filter(|s| !spec.get(s).is_null()).collect();
    if said.is_empty() {
        out.push(FieldError::required(path, "must specify a volume type"));
    }
    for (i, key) in said.iter().enumerate() {
        if i > 0 {
            let why = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&path.child(key), why));
            continue;
        }
        // One path is upstream's.
        let told = if **key == "gcePersistentDisk" {
            "persistentDisk"
        } else {
            key
        };
        super::pod::volume_source(out, spec, key, &path.child(told));
        if **key == "csi" && spec.str_at(&["csi", "volumeHandle"]).is_empty() {
            out.push(FieldError::required(&path.child("csi").child("volumeHandle"), ""));
        }
        if **key == "local" {
            let at = path.child("local").child("path");
            if spec.str_at(&["local", "path"]).is_empty() {
                out.push(FieldError::required(&at, ""));
            }
            if spec.at(&["nodeAffinity", "required"]).is_null() {
                let why = "Local volume requires node affinity";
                out.push(FieldError::required(&path.child("nodeAffinity"), why));
            }
        }
    }
}

pub(crate) fn persistent_volume_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = persistent_volume(new);
    let sources = |v: &Value| -> Vec<(&str, Value)> {
        SOURCES
            .iter()
            .map(|s| {
                let mut source = v.at(&["spec", s]).clone();
                if *s == "csi" {
                    source.unset(&["controllerExpandSecretRef"]);
                }
                (*s, source)
            })
            .collect()
    };
    if sources(new) != sources(old) {
        out.push(FieldError::forbidden(
            &FieldPath::new("spec").child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    let (mode, affinity) = (["spec", "volumeMode"], ["spec", "nodeAffinity"]);
    if new.at(&mode) != old.at(&mode) {
        let at = FieldPath::new("volumeMode");
        out.push(FieldError::invalid(&at, new.at(&mode).clone(), IMMUTABLE));
    }
    if !old.at(&affinity).is_null() && new.at(&affinity) != old.at(&affinity) {
        out.push(FieldError::invalid(
            &FieldPath::new("nodeAffinity"),
            new.at(&affinity).clone(),
            "field is immutable, except for updating from beta label to GA",
        ));
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
    claim_spec(&mut out, v.get("spec"), &FieldPath::new("spec"));
    out
}

/// A claim's spec, also in templates.
pub(super) fn claim_spec(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
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
        data_source(out, spec.get(key), &path.child(key));
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    if !source.is_null() && !reference.is_null() && source != reference {
        out.push(FieldError::invalid_raw(path, "{}", "must match dataSourceRef"));
    }
    let class = spec.str_at(&["volumeAttributesClassName"]);
    if !class.is_empty() {
        let at = path.child("volumeAttributesClassName");
        invalid_each(out, &at, class, dns1123_subdomain(class));
    }
}

fn data_source(out: &mut ErrorList, v: &Value, at: &FieldPath) {
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
    if !group.is_empty() {
        invalid_each(out, &at.child("apiGroup"), group, dns1123_subdomain(group));
    }
}

pub(crate) fn claim_update(new: &Value, old: &Value) -> ErrorList {
    let mut out = claim(new);
    let path = FieldPath::new("spec");
    let bound = new.str_at(&["status", "phase"]) == "Bound";
    let rest = |v: &Value| {
        let mut spec = v.get("spec").clone();
        if old.str_at(&["spec", "volumeName"]).is_empty() {
            spec.unset(&["volumeName"]);
        }
        if old.at(&["spec", "storageClassName"]).is_null() {
            spec.unset(&["storageClassName"]);
        }
        spec.unset(&["volumeAttributesClassName"]);
        if bound {
            spec.unset(&["resources", "requests"]);
        }
        spec
    };
    if !same(&rest(new), &rest(old)) {
        let difference = internal::difference(old.get("spec"), new.get("spec"), internal::CLAIM_SPEC);
        out.push(FieldError::forbidden(
            &path,
            format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims{difference}"),
        ));
    } else if bound {
        let size = |v: &Value, p: &[&str]| quantity(v.at(p));
        let request = ["spec", "resources", "requests", "storage"];
        let capacity = size(new, &["status", "capacity", "storage"]);
        if let (Some(now), Some(was)) = (size(new, &request), size(old, &request))
            && now < was
            && capacity.is_none_or(|c| now <= c)
        {
            let at = path.child("resources").child("requests").child("storage");
            out.push(FieldError::forbidden(&at, "field can not be less than status.capacity"));
        }
    }
    let mode = ["spec", "volumeMode"];
    if new.at(&mode) != old.at(&mode) {
        let at = FieldPath::new("volumeMode");
        out.push(FieldError::invalid(&at, new.at(&mode).clone(), IMMUTABLE));
    }
    if new.annotation(BETA_CLASS) != old.annotation(BETA_CLASS) {
        let at = FieldPath::new("metadata").child("annotations").child(BETA_CLASS);
        let value = new.annotation(BETA_CLASS).unwrap_or("");
        out.push(FieldError::invalid(&at, value, IMMUTABLE));
    }
    let class = ["spec", "volumeAttributesClassName"];
    if !old.at(&["status", "currentVolumeAttributesClassName"]).is_null() && new.str_at(&class).is_empty() {
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

pub(crate) fn claim_status(new: &Value, _old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let path = FieldPath::new("status");
    const PHASES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let phases = new.at(&["status", "allocatedResourceStatuses"]);
    for (key, phase) in phases.as_object().into_iter().flat_map(|m| m.iter()) {
        if !phase.as_str().is_some_and(|p| PHASES.contains(&p)) {
            let at = path.child("allocatedResourceStatuses").key(key);
            out.push(FieldError::not_supported(&at, key, PHASES));
        }
    }
    if !new.at(&["status", "accessModes"]).is_empty_value() {
        let mut modes = Value::object();
        modes.set(&["accessModes"], new.at(&["status", "accessModes"]).clone());
        access_modes(&mut out, &modes, &FieldPath::new("Spec"), "");
    }
    for (key, q) in new
        .at(&["status", "capacity"])
        .as_object()
        .into_iter()
        .flat_map(|m| m.iter())
    {
        if quantity(q).is_some_and(super::common::is_negative) {
            out.push(FieldError::invalid(
                &path.child("capacity").key(key),
                q.clone(),
                super::common::NOT_NEGATIVE,
            ));
        }
    }
    out
}

pub(crate) fn claim_warnings(v: &Value) -> Vec<String> {
    let mut out: Vec<String> = class_warning(v).into_iter().collect();
    for side in ["requests", "limits"] {
        let q = v.at(&["spec", "resources", side, "storage"]);
        if quantity(q).is_some_and(|q| !super::common::is_whole(q)) {
            out.push(format!(
                "spec.resources.{side}[storage]: fractional byte value {} is invalid, must be an integer",
                show(q)
            ));
        }
    }
    out
}

/// Modes, policies and the like that a choice in another file needs.
pub(super) fn reclaim_policy(out: &mut ErrorList, v: &Value) {
    required_choice(out, v, "reclaimPolicy", &FieldPath::default(), &["Delete", "Retain"]);
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
    fn volumes_are_refused_in_the_recorded_words() {
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
    fn claims_are_refused_in_the_recorded_words() {
        let said = |spec: Value| {
            let mut v = json!({});
            v.set(&["spec"], spec);
            aggregate(&claim(&v))
        };
        assert_eq!(
            said(json!({"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}})),
            "spec.accessModes: Required value: at least 1 access mode is required"
        );
        assert_eq!(
            said(json!({"accessModes": ["ReadWriteOnce"]})),
            "spec.resources[storage]: Required value"
        );
    }

    #[test]
    fn a_claim_grows_when_bound() {
        let old = json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}},
                         "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        let mut new = old.clone();
        new.set(&["spec", "resources", "requests", "storage"], "2Gi");
        assert_eq!(aggregate(&claim_update(&new, &old)), "[]");
        new.set(&["status", "phase"], "Pending");
        assert!(aggregate(&claim_update(&new, &old)).starts_with("spec: Forbidden: spec is immutable"));
    }
}
