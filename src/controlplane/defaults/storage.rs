//! Defaults of PersistentVolumes, claims, LimitRanges, StorageClasses and CSIDrivers
//! (`pkg/apis/core/v1/defaults.go`, `pkg/apis/storage/v1/defaults.go`).

use super::pod::source_fields;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default, set_default_str, set_defaults};

pub(crate) fn persistent_volume(v: &mut Value) {
    set_default_str(v, &["status", "phase"], "Pending");
    set_default_str(v, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    set_default(v, &["spec", "volumeMode"], "Filesystem");
    if let Some(spec) = v.at_mut(&["spec"]) {
        source_fields(spec);
    }
}

pub(crate) fn volume_attachment(v: &mut Value) {
    if let Some(spec) = v.at_mut(&["spec", "source", "inlineVolumeSpec"]) {
        source_fields(spec);
    }
}

pub(crate) fn claim(v: &mut Value) {
    set_default_str(v, &["status", "phase"], "Pending");
    set_default(v, &["spec", "volumeMode"], "Filesystem");
}

/// Completes container limits: `default` from `max`, then `defaultRequest` from `default`, then from `min`.
pub(crate) fn limit_range(v: &mut Value) {
    for item in elements_mut(v, &["spec", "limits"]) {
        if item.str_at(&["type"]) != "Container" {
            continue;
        }
        // In this order: each step reads what the steps before it have set.
        for (to, from) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            let given = item.get(from).clone();
            let given = given.as_object().into_iter().flat_map(|m| m.iter());
            set_defaults(item, &[to], given.map(|(k, q)| (k, q.clone())));
        }
    }
}

pub(crate) fn storage_class(v: &mut Value) {
    set_default(v, &["reclaimPolicy"], "Delete");
    set_default(v, &["volumeBindingMode"], "Immediate");
}

pub(crate) fn csi_driver(v: &mut Value) {
    set_default(v, &["spec", "attachRequired"], true);
    set_default(v, &["spec", "fsGroupPolicy"], "ReadWriteOnceWithFSType");
    for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set_default(v, &["spec", key], false);
    }
    if v.at(&["spec", "volumeLifecycleModes"]).is_empty_value() {
        v.set(&["spec", "volumeLifecycleModes"], crate::json!(["Persistent"]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn container_limits_are_completed_from_max_and_min() {
        let mut v = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m", "memory": "1Mi"}},
                                               {"type": "Pod", "max": {"cpu": "2"}}]}});
        limit_range(&mut v);
        let limits = v.at(&["spec", "limits"]).items();
        assert_eq!(limits[0].get("default"), &json!({"cpu": "2"}));
        assert_eq!(limits[0].get("defaultRequest"), &json!({"cpu": "2", "memory": "1Mi"}));
        assert_eq!(limits[1], json!({"type": "Pod", "max": {"cpu": "2"}}));
    }
}
