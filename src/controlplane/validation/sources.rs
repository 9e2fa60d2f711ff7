//! Validation of volume sources, which pods' volumes and PersistentVolumes share. Entry point: [`source`];
//! larger sources are in `disks`, `files` and `network`. Odd error paths are upstream's.

mod disks;
mod files;
mod network;

use super::claims;
use super::common::{csi_driver_name, is_negative, local_path, no_backsteps, quantity};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, meta};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, optional_choice, required_valid};

/// The owner of a source; some rules differ.
#[derive(Clone, Copy)]
pub(super) enum SourceOwner<'a> {
    /// A pod, with the name of its volume.
    Pod(&'a str),
    /// A PersistentVolume, with its name.
    Persistent(&'a str),
}

impl SourceOwner<'_> {
    fn persists(self) -> bool {
        matches!(self, Self::Persistent(_))
    }
}

/// Required string fields by source.
const REQUIRED: &[(&str, &str)] = &[
    ("hostPath", "path"),
    ("gitRepo", "repository"),
    ("awsElasticBlockStore", "volumeID"),
    ("secret", "secretName"),
    ("nfs", "server"),
    ("nfs", "path"),
    ("glusterfs", "endpoints"),
    ("glusterfs", "path"),
    ("persistentVolumeClaim", "claimName"),
    ("cinder", "volumeID"),
    ("flexVolume", "driver"),
    ("configMap", "name"),
    ("azureFile", "secretName"),
    ("azureFile", "shareName"),
    ("vsphereVolume", "volumePath"),
    ("photonPersistentDisk", "pdID"),
    ("portworxVolume", "volumeID"),
    ("azureDisk", "diskName"),
    ("azureDisk", "diskURI"),
    ("scaleIO", "gateway"),
    ("scaleIO", "system"),
    ("scaleIO", "volumeName"),
    ("local", "path"),
];

/// Validates the source at `key` of `holder`.
pub(super) fn source(out: &mut ErrorList, holder: &Value, key: &str, path: &FieldPath, owner: SourceOwner<'_>) {
    let v = holder.get(key);
    let at = &match key {
        "gcePersistentDisk" => path.child("persistentDisk"),
        _ => path.child(key),
    };
    // Missing fields come first for every source; upstream checks most of them in this order as well.
    for (_, field) in REQUIRED.iter().filter(|(s, _)| *s == key) {
        if v.str_at(&[field]).is_empty() {
            out.push(FieldError::required(&at.child(field), ""));
        }
    }
    match key {
        // `Forbidden` for a malformed amount, and the capital letter, are upstream's.
        "emptyDir" if quantity(v.get("sizeLimit")).is_some_and(is_negative) => {
            let why = "SizeLimit field must be a valid resource quantity";
            out.push(FieldError::forbidden(&at.child("sizeLimit"), why));
        }
        "hostPath" => host_path(out, v, at),
        "local" => no_backsteps(out, v.str_at(&["path"]), &at.child("path")),
        "gitRepo" => local_path(out, v.str_at(&["directory"]), &at.child("directory")),
        "secret" | "configMap" => files::keys(out, v, at),
        "downwardAPI" => files::downward_volume(out, v, at),
        "projected" => files::projected(out, v, at),
        "nfs" => network::nfs(out, v, at),
        "iscsi" => network::iscsi(out, v, path, owner),
        "fc" => network::fibre_channel(out, v, at),
        "quobyte" => network::quobyte(out, v, at),
        "flocker" => network::flocker(out, v, at),
        // Only PersistentVolumes, which have no namespace of their own, can refer to Endpoints in another
        // one.
        "glusterfs" if owner.persists() => network::gluster_namespace(out, v, at),
        "rbd" | "cephfs" => {
            if v.get("monitors").items().is_empty() {
                out.push(FieldError::required(&at.child("monitors"), ""));
            }
            if key == "rbd" && v.str_at(&["image"]).is_empty() {
                out.push(FieldError::required(&at.child("image"), ""));
            }
        }
        "cinder" => secret(out, v, at, owner),
        "storageos" => {
            required_valid(out, &at.child("volumeName"), v.str_at(&["volumeName"]), dns1123_label);
            let space = v.str_at(&["volumeNamespace"]);
            if !space.is_empty() {
                invalid_each(out, &at.child("volumeNamespace"), space, dns1123_label(space));
            }
            secret(out, v, at, owner);
        }
        "gcePersistentDisk" => disks::google(out, v, at),
        "awsElasticBlockStore" => disks::partition(out, v, at),
        "azureDisk" => disks::azure(out, v, at),
        // Absent means the claim's namespace; only an explicit empty string is an error.
        "azureFile" if owner.persists() && v.get("secretNamespace").as_str() == Some("") => {
            out.push(FieldError::required(&at.child("secretNamespace"), ""));
        }
        "flexVolume" => flex_options(out, v, at),
        "csi" => csi(out, v, at, owner),
        "ephemeral" => ephemeral(out, v, at),
        _ => {}
    }
}

fn host_path(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    // Reported as missing by `source`; upstream stops here as well.
    if v.str_at(&["path"]).is_empty() {
        return;
    }
    no_backsteps(out, v.str_at(&["path"]), &at.child("path"));
    let kinds = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    optional_choice(out, v, "type", at, &kinds);
}

/// Checks a secret reference: it needs a name, and in a PersistentVolume, which has no namespace, a namespace
/// too.
fn secret(out: &mut ErrorList, v: &Value, at: &FieldPath, owner: SourceOwner<'_>) {
    let (reference, at) = (v.get("secretRef"), at.child("secretRef"));
    if reference.is_null() {
        return;
    }
    let keys: &[&str] = if owner.persists() {
        &["name", "namespace"]
    } else {
        &["name"]
    };
    for key in keys.iter().filter(|k| reference.str_at(&[k]).is_empty()) {
        out.push(FieldError::required(&at.child(key), ""));
    }
}

fn flex_options(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let options = v.get("options").as_object();
    for key in options.into_iter().flat_map(|m| m.keys()) {
        // With a leading dot, so that both the domain itself and its subdomains match, but not
        // `mykubernetes.io`.
        let domain = format!(".{}", key.split_once('/').map_or(key, |(d, _)| d).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            out.push(FieldError::invalid(&at.child("options").key(key), key, why));
        }
    }
}

fn csi(out: &mut ErrorList, v: &Value, at: &FieldPath, owner: SourceOwner<'_>) {
    csi_driver_name(out, v.str_at(&["driver"]), &at.child("driver"));
    if owner.persists() {
        if v.str_at(&["volumeHandle"]).is_empty() {
            out.push(FieldError::required(&at.child("volumeHandle"), ""));
        }
        for key in [
            "controllerPublishSecretRef",
            "controllerExpandSecretRef",
            // `nodeStageSecretRef` is missing here, as upstream.
            "nodePublishSecretRef",
            "nodeExpandSecretRef",
        ] {
            let (reference, at) = (v.get(key), at.child(key));
            if reference.is_null() {
                continue;
            }
            required_valid(out, &at.child("name"), reference.str_at(&["name"]), dns1123_subdomain);
            required_valid(
                out,
                &at.child("namespace"),
                reference.str_at(&["namespace"]),
                dns1123_label,
            );
        }
        return;
    }
    let reference = v.get("nodePublishSecretRef");
    if reference.is_null() {
        return;
    }
    match reference.str_at(&["name"]) {
        "" => out.push(FieldError::required(
            &at.child("nodePublishSecretRef").child("name"),
            "",
        )),
        // The path lacks `nodePublishSecretRef`, as upstream.
        name => invalid_each(out, &at.child("name"), name, dns1123_subdomain(name)),
    }
}

fn ephemeral(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (template, at) = (v.get("volumeClaimTemplate"), at.child("volumeClaimTemplate"));
    if template.is_null() {
        out.push(FieldError::required(&at, ""));
        return;
    }
    claim_metadata(out, template.get("metadata"), &at.child("metadata"));
    // No old spec: the volumes of a pod are immutable, so there is nothing to tolerate.
    claims::claim_spec(out, template.get("spec"), &at.child("spec"), &Value::Null);
}

/// Metadata members not allowed in claim templates: JSON name, and name in the error path (Go's field name
/// with a lower first letter).
const NOT_IN_TEMPLATES: &[(&str, &str)] = &[
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// Checks the metadata of a claim template, which may only have labels and annotations.
pub(super) fn claim_metadata(out: &mut ErrorList, metadata: &Value, at: &FieldPath) {
    meta::validate_annotations(metadata.get("annotations"), &at.child("annotations"), out);
    meta::validate_labels(metadata.get("labels"), &at.child("labels"), out);
    for (key, field) in NOT_IN_TEMPLATES {
        let is_set = match metadata.get(key) {
            Value::String(s) => !s.is_empty(),
            // A pointer upstream.
            Value::Int(_) if *key == "deletionGracePeriodSeconds" => true,
            Value::Int(n) => *n != 0,
            // An empty list is not Go's zero value either.
            v => !v.is_null(),
        };
        if is_set {
            out.push(FieldError::forbidden(&at.child(field), "cannot be set"));
        }
    }
}

#[cfg(test)]
mod tests;
