//! Defaults of pod volumes and of the volume sources shared with PersistentVolumes
//! (`pkg/apis/core/v1/defaults.go`).

use super::container::pull_policy;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str};

/// Source, field and default of string fields, applied if the source is set.
const STRINGS: &[(&str, &str, &str)] = &[
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
    ("scaleIO", "fsType", "xfs"),
];

/// Defaults of volume sources that pods and PersistentVolumes share.
pub(in crate::controlplane::defaults) fn source_fields(v: &mut Value) {
    for (source, key, value) in STRINGS {
        if !v.get(source).is_null() {
            set_default_str(v, &[source, key], value);
        }
    }
    if !v.get("azureDisk").is_null() {
        for (key, value) in [("cachingMode", "ReadWrite"), ("kind", "Shared"), ("fsType", "ext4")] {
            set_default(v, &["azureDisk", key], value);
        }
        set_default(v, &["azureDisk", "readOnly"], false);
    }
    if !v.get("hostPath").is_null() {
        set_default(v, &["hostPath", "type"], "");
    }
}

/// Defaults of a pod volume; one without a source becomes an `emptyDir`.
pub(super) fn volume(v: &mut Value) {
    // Every other member is a source, whether this server knows it or not.
    if v.as_object()
        .is_some_and(|m| m.iter().all(|(k, x)| k == "name" || x.is_null()))
    {
        v.set(&["emptyDir"], Value::object());
    }
    source_fields(v);
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if !v.get(key).is_null() {
            // 0644 in octal.
            set_default(v, &[key, "defaultMode"], 420i64);
        }
    }
    for item in elements_mut(v, &["downwardAPI", "items"]) {
        field_ref(item);
    }
    for source in elements_mut(v, &["projected", "sources"]) {
        if !source.get("serviceAccountToken").is_null() {
            set_default(source, &["serviceAccountToken", "expirationSeconds"], 3600i64);
        }
        for item in elements_mut(source, &["downwardAPI", "items"]) {
            field_ref(item);
        }
    }
    if !v.at(&["ephemeral", "volumeClaimTemplate"]).is_null() {
        set_default(
            v,
            &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
            "Filesystem",
        );
    }
    if !v.get("image").is_null() && v.str_at(&["image", "pullPolicy"]).is_empty() {
        let policy = pull_policy(v.str_at(&["image", "reference"]));
        v.set(&["image", "pullPolicy"], policy);
    }
}

fn field_ref(item: &mut Value) {
    if !item.get("fieldRef").is_null() {
        set_default_str(item, &["fieldRef", "apiVersion"], "v1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_volume_without_a_source_becomes_an_empty_dir() {
        let mut v = json!({"name": "a"});
        volume(&mut v);
        assert_eq!(v, json!({"name": "a", "emptyDir": {}}));
        let mut v = json!({"name": "a", "hostPath": {"path": "/x"}});
        volume(&mut v);
        assert_eq!(v, json!({"name": "a", "hostPath": {"path": "/x", "type": ""}}));
    }
}
