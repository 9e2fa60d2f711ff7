//! Validation of a container's volume mounts and block devices.

use super::super::common::local_path;
use super::volume::Volumes;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::Seen;
use crate::interrupt::checkpoint;
use std::collections::HashMap;

pub(super) fn mounts(out: &mut ErrorList, c: &Value, volumes: &Volumes<'_>, at: &FieldPath) {
    let path = at.child("volumeMounts");
    // Indexed once: the lists are the client's, and comparing all pairs would be quadratic.
    let devices = paths_by_name(c.get("volumeDevices"), "devicePath");
    let device_paths: Seen<&str> = devices.values().copied().collect();
    let mut paths: Seen<&str> = Seen::new();
    for (i, m) in c.get("volumeMounts").items().iter().enumerate() {
        checkpoint();
        let at = path.index(i);
        let (name, mount) = (m.str_at(&["name"]), m.str_at(&["mountPath"]));
        if name.is_empty() {
            out.push(FieldError::required(&at.child("name"), ""));
        }
        // Also for an empty name: both errors are upstream's.
        if !volumes.has(name) {
            out.push(FieldError::not_found(&at.child("name"), name));
        }
        if mount.is_empty() {
            out.push(FieldError::required(&at.child("mountPath"), ""));
        }
        let mut refuse = |key: &str, shown: &str, why: &str| out.push(FieldError::invalid(&at.child(key), shown, why));
        // Compared as written: `/a` and `/a/` are different to upstream.
        if !paths.insert(mount) {
            refuse("mountPath", mount, "must be unique");
        }
        if devices.contains_key(name) {
            refuse("name", name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(&mount) {
            refuse("mountPath", mount, "must not already exist as a path in volumeDevices");
        }
        let (below, computed) = (m.str_at(&["subPath"]), m.str_at(&["subPathExpr"]));
        // As upstream, the paths of these checks have no index.
        local_path(out, below, &path.child("subPath"));
        if !below.is_empty() && !computed.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            out.push(FieldError::invalid(&at.child("subPathExpr"), computed, why));
        }
        local_path(out, computed, &path.child("subPathExpr"));
        propagation(out, c, m, &path);
    }
    self::devices(out, c, volumes, at);
}

/// The paths of a list of mounts or devices. As upstream, only the last one of a volume counts.
fn paths_by_name<'v>(list: &'v Value, path: &str) -> HashMap<&'v str, &'v str> {
    let all = list.items().iter();
    all.map(|v| (v.str_at(&["name"]), v.str_at(&[path]))).collect()
}

fn propagation(out: &mut ErrorList, c: &Value, m: &Value, path: &FieldPath) {
    let at = path.child("mountPropagation");
    let mode = m.get("mountPropagation").as_str();
    match mode {
        None | Some("HostToContainer" | "None") => {}
        Some("Bidirectional") => {
            // Mounts propagated to the host outlive the container and could replace files of the node.
            if c.at(&["securityContext", "privileged"]).as_bool() != Some(true) {
                let why = "Bidirectional mount propagation is available only to privileged containers";
                out.push(FieldError::forbidden(&at, why));
            }
        }
        Some(other) => out.push(FieldError::not_supported(
            &at,
            other,
            &["Bidirectional", "HostToContainer", "None"],
        )),
    }
    let at = path.child("recursiveReadOnly");
    match m.get("recursiveReadOnly").as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if m.get("readOnly").as_bool() != Some(true) {
                out.push(FieldError::forbidden(
                    &at,
                    "may only be specified when readOnly is true",
                ));
            }
            // Mounts that appear later could not be made read-only.
            if !matches!(mode, None | Some("None")) {
                let why = "may only be specified when mountPropagation is None or not specified";
                out.push(FieldError::forbidden(&at, why));
            }
        }
        Some(other) => out.push(FieldError::not_supported(
            &at,
            other,
            &["Disabled", "Enabled", "IfPossible"],
        )),
    }
}

fn devices(out: &mut ErrorList, c: &Value, volumes: &Volumes<'_>, at: &FieldPath) {
    let mounts = paths_by_name(c.get("volumeMounts"), "mountPath");
    let mounted: Seen<&str> = mounts.values().copied().collect();
    let (mut names, mut paths): (Seen<&str>, Seen<&str>) = (Seen::new(), Seen::new());
    for (i, d) in c.get("volumeDevices").items().iter().enumerate() {
        checkpoint();
        let at = at.child("volumeDevices").index(i);
        let (name, path) = (d.str_at(&["name"]), d.str_at(&["devicePath"]));
        let name_at = at.child("name");
        let path_at = at.child("devicePath");
        if name.is_empty() {
            out.push(FieldError::required(&name_at, ""));
        }
        if names.contains(&name) {
            out.push(FieldError::invalid(&name_at, name, "must be unique"));
        }
        if !volumes.has(name) {
            out.push(FieldError::not_found(&name_at, name));
        } else if !volumes.is_block(name) {
            let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            out.push(FieldError::invalid(&name_at, name, why));
        }
        if path.is_empty() {
            out.push(FieldError::required(&path_at, ""));
        }
        if paths.contains(&path) {
            out.push(FieldError::invalid(&path_at, path, "must be unique"));
        }
        if path.split('/').any(|p| p == "..") {
            out.push(FieldError::invalid(&path_at, path, "can not contain backsteps ('..')"));
        // A path with backsteps is not remembered, as upstream.
        } else {
            paths.insert(path);
        }
        if mounts.contains_key(name) {
            out.push(FieldError::invalid(
                &name_at,
                name,
                "must not already exist in volumeMounts",
            ));
        }
        if mounted.contains(&path) {
            let why = "must not already exist as a path in volumeMounts";
            out.push(FieldError::invalid(&path_at, path, why));
        }
        // Empty names have been reported and are not duplicates of each other.
        if !name.is_empty() {
            names.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::apimachinery::field::aggregate;
    use crate::controlplane::validation::pod::pod;
    use crate::json;

    #[test]
    fn a_device_may_have_a_path_of_a_volume_that_is_mounted_again() {
        let errors = |device: &str| {
            let mut v = json!({"spec": {
                "volumes": [{"name": "data", "emptyDir": {}}, {"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}],
                "containers": [{"name": "a", "image": "i",
                    "volumeMounts": [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}],
                    "volumeDevices": [{"name": "disk", "devicePath": device}]}]}});
            crate::controlplane::defaults::pod::pod(&mut v);
            aggregate(&pod(&v))
        };
        let (at, why) = ("spec.containers[0]", "must not already exist as a path in");
        assert_eq!(
            errors("/a"),
            format!("{at}.volumeMounts[0].mountPath: Invalid value: \"/a\": {why} volumeDevices")
        );
        assert_eq!(
            errors("/b"),
            format!(
                "[{at}.volumeMounts[1].mountPath: Invalid value: \"/b\": {why} volumeDevices, \
                 {at}.volumeDevices[0].devicePath: Invalid value: \"/b\": {why} volumeMounts]"
            )
        );
    }
}
