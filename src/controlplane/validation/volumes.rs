//! Validation of PersistentVolumes, and of the volume specs embedded in VolumeAttachments
//! (`ValidatePersistentVolumeSpec` upstream). Sources are in `sources`, fields shared with claims in `claims`.

use super::claims::{access_modes, amount, class_name, class_warning, positive, volume_mode};
use super::go_form;
use super::sources::{self, SourceOwner};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, elements_mut, invalid_each, optional_choice, same};

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
/// Labels of nodes in beta and the stable ones that replaced them.
const STABLE_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];
const BETA_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

pub(crate) fn persistent_volume(v: &Value) -> ErrorList {
    checked_volume(v, &Value::Null)
}

/// Checks a volume; `old` is the stored one on update, else null.
fn checked_volume(v: &Value, old: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    let (spec, path) = (v.get("spec"), FieldPath::new("spec"));
    access_modes(&mut out, spec, &path, "");
    capacity(&mut out, spec.get("capacity"), &path.child("capacity"));
    let policy = spec.str_at(&["persistentVolumeReclaimPolicy"]);
    // Empty is valid only for specs that were not defaulted, such as inline ones.
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        out.push(FieldError::not_supported(
            &path.child("persistentVolumeReclaimPolicy"),
            policy,
            &["Delete", "Recycle", "Retain"],
        ));
    }
    let (affinity, at) = (spec.get("nodeAffinity"), path.child("nodeAffinity").child("required"));
    if !affinity.get("required").is_null() {
        let stored = old.at(&["spec", "nodeAffinity", "required"]);
        super::pod::node_selector_update(&mut out, affinity.get("required"), stored, &at);
    } else if !affinity.is_null() {
        out.push(FieldError::required(&at, "must specify required node constraints"));
    }
    source(&mut out, spec, &path, v.name(), !affinity.is_null());
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
        // Only CSI drivers can modify volumes.
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
        // An absent map is null in the message, in addition to `Required` above.
        out.push(FieldError::not_supported(at, capacity.clone(), &["storage"]));
    }
    for (key, q) in capacity.as_object().into_iter().flat_map(|m| m.iter()) {
        amount(out, q, &at.key(key));
        positive(out, q, &at.key(key));
    }
}

/// Rejects `Recycle` for a `hostPath` of `/`, which would erase the node's root.
fn recycled_root(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    // As Go's `path.Clean`, for paths without backsteps, which are refused anyway.
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
        let v = spec.get(key);
        let is_set = match key {
            // Pointers upstream, which are set even if they are empty.
            "claimRef" | "nodeAffinity" => !v.is_null(),
            _ => !v.is_empty_value(),
        };
        if is_set {
            out.push(FieldError::forbidden(&path.child(key), NOT_INLINE));
        }
    };
    // An inline volume is never bound: these fields belong to PersistentVolumes. One by one between the other
    // checks, in upstream's order.
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
    // A node affinity is forbidden, and does not count.
    source(out, spec, path, "", false);
    recycled_root(out, spec, path);
    forbid_set(out, "storageClassName");
    if !matches!(spec.get("volumeMode").as_str(), None | Some("Filesystem")) {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        out.push(FieldError::forbidden(&path.child("volumeMode"), why));
    }
}

/// Checks the source of a volume named `name`; `is_placed` if a node affinity says where the volume is.
fn source(out: &mut ErrorList, spec: &Value, path: &FieldPath, name: &str, is_placed: bool) {
    let sources: Vec<&&str> = SOURCES.iter().filter(|s| !spec.get(s).is_null()).collect();
    for (i, key) in sources.iter().enumerate() {
        // As upstream, a flex volume is not reported as a second source.
        if i > 0 && **key != "flexVolume" {
            // The capital letters are upstream's.
            let field = if **key == "cephfs" { "cephFS" } else { key };
            let why = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&path.child(field), why));
            continue;
        }
        sources::source(out, spec, key, path, SourceOwner::Persistent(name));
        // The scheduler could not find out on which node the data is.
        if **key == "local" && !is_placed {
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
    let mut out = checked_volume(new, old);
    out.extend(checked_volume(new, old));
    let (was, mut now) = (old.get("spec"), new.get("spec").clone());
    let secret = ["csi", "controllerExpandSecretRef"];
    // This secret may be added to an existing CSI source.
    if !was.get("csi").is_null() && was.at(&secret).is_null() {
        now.unset(&secret);
    }
    // Source by source: the spec holds other fields beside them.
    let differs = |was: &Value, now: &Value| was.is_null() != now.is_null() || !same(was, now);
    if SOURCES.iter().any(|s| differs(was.get(s), now.get(s))) {
        let difference = go_form::difference(was, &now, go_form::PERSISTENT);
        out.push(FieldError::forbidden(
            &FieldPath::new("spec").child("persistentvolumesource"),
            format!("spec.persistentvolumesource is immutable after creation{difference}"),
        ));
    }
    let (mode, affinity) = (["spec", "volumeMode"], ["spec", "nodeAffinity"]);
    if new.at(&mode) != old.at(&mode) {
        // Upstream's paths of this and the next field lack `spec`.
        let at = FieldPath::new("volumeMode");
        out.push(FieldError::invalid_enum(&at, new.at(&mode).clone(), IMMUTABLE));
    }
    let (nodes, had_nodes) = (new.at(&affinity), old.at(&affinity));
    if !had_nodes.is_null() && !same(nodes, &with_stable_keys(had_nodes, nodes)) {
        let shown = match nodes {
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

/// The stored node affinity, with the stable labels that the update has in place of beta ones.
fn with_stable_keys(old: &Value, new: &Value) -> Value {
    let terms = ["required", "nodeSelectorTerms"];
    let mut out = old.clone();
    for (term, now) in elements_mut(&mut out, &terms).zip(new.at(&terms).items()) {
        for list in ["matchExpressions", "matchFields"] {
            for (was, now) in elements_mut(term, &[list]).zip(now.get(list).items()) {
                let key = now.str_at(&["key"]);
                if STABLE_LABELS.contains(&(was.str_at(&["key"]), key)) {
                    was.set(&["key"], key);
                }
            }
        }
    }
    out
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

/// Checks the reclaim policy of a StorageClass.
pub(super) fn reclaim_policy(out: &mut ErrorList, v: &Value) {
    // Unlike for volumes, `Recycle` is not supported.
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
    fn beta_labels_of_the_node_affinity_may_become_stable_ones() {
        let with = |key: &str, value: &str| {
            let mut v = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/tmp"}}});
            let terms = json!([{"matchExpressions": [{"key": (key), "operator": "In", "values": [(value)]}]}]);
            v.set(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"], terms);
            v
        };
        let (beta, stable) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
        let update = |new: &Value, old: &Value| aggregate(&persistent_volume_update(new, old));
        assert_eq!(update(&with(stable, "a"), &with(beta, "a")), "[]");
        for wrong in [with(beta, "a"), with("beta.kubernetes.io/os", "a")] {
            assert!(update(&wrong, &with(stable, "a")).starts_with("nodeAffinity: Invalid value"));
        }
        assert!(update(&with(stable, "b"), &with(beta, "a")).starts_with("nodeAffinity: Invalid value"));
        // A value that is stored already is not checked.
        assert_ne!(aggregate(&persistent_volume(&with(stable, "not valid"))), "[]");
        assert_eq!(update(&with(stable, "not valid"), &with(stable, "not valid")), "[]");
    }

    #[test]
    fn empty_objects_are_forbidden_inline_and_do_not_place_a_local_volume() {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "claimRef": {}, "nodeAffinity": {}, "capacity": {},
            "local": {"path": "/d"}, "csi": {"driver": "d", "volumeHandle": "h"}});
        let mut out = ErrorList::new();
        inline_volume(&mut out, &spec, &FieldPath::new("s"));
        let why = "may not be specified in the context of inline volumes";
        assert_eq!(
            aggregate(&out),
            format!(
                "[s.claimRef: Forbidden: {why}, s.nodeAffinity: Forbidden: {why}, s.nodeAffinity: Required value: Local \
                 volume requires node affinity, s.csi: Forbidden: may not specify more than 1 volume type]"
            )
        );
    }

    #[test]
    fn an_empty_list_in_the_source_is_no_change() {
        let with = |iscsi: Value| {
            let mut v = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
            v.set(&["spec", "iscsi"], iscsi);
            v
        };
        let old = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2020-01.a.b:c", "lun": 0});
        let new = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2020-01.a.b:c", "lun": 0, "portals": []});
        assert_eq!(aggregate(&persistent_volume_update(&with(new), &with(old))), "[]");
    }

    #[test]
    fn volume_errors_match_the_recordings() {
        for (changes, want) in [
            (json!({}), "[]"),
            (
                json!({"capacity": null}),
                "[spec.capacity: Required value, spec.capacity: Unsupported value: null: supported values: \"storage\"]",
            ),
            (
                json!({"capacity": {}}),
                "[spec.capacity: Required value, spec.capacity: Unsupported value: {}: supported values: \"storage\"]",
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
}
