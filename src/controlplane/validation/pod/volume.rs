//! Volumes.

use super::super::common::{is_negative, quantity};
use super::super::{storage, volumes as claims};
use super::env::{VOLUME_FIELDS, field_ref, resource_ref};
use super::mounts::{local_path, no_backsteps};
use super::spec::Of;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain, meta};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{invalid_each, optional_choice};

/// The volumes of a pod that are right.
pub(super) struct Volumes<'a>(Vec<(&'a str, &'a Value)>);

impl Volumes<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| *n == name)
    }

    /// May it be a device?
    pub(super) fn is_block(&self, name: &str) -> bool {
        let found = self.0.iter().find(|(n, _)| *n == name);
        found.is_some_and(|(_, v)| !v.get("persistentVolumeClaim").is_null() || !v.get("ephemeral").is_null())
    }
}

/// Sources, in the order upstream looks at them, with the name a second one is told by where that is not its own.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Fields that sources cannot be without.
const REQUIRED: &[(&str, &str)] = &[
    ("hostPath", "path"),
    ("gitRepo", "repository"),
    ("awsElasticBlockStore", "volumeID"),
    ("secret", "secretName"),
    ("nfs", "server"),
    ("nfs", "path"),
    ("iscsi", "targetPortal"),
    ("iscsi", "iqn"),
    ("glusterfs", "endpoints"),
    ("glusterfs", "path"),
    ("persistentVolumeClaim", "claimName"),
    ("rbd", "image"),
    ("cinder", "volumeID"),
    ("quobyte", "registry"),
    ("quobyte", "volume"),
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
];

/// Checks volumes; gives those that are right.
pub(super) fn volumes<'a>(out: &mut ErrorList, spec: &'a Value, path: &FieldPath, of: Of) -> Volumes<'a> {
    let mut found = Volumes(Vec::new());
    for (i, v) in spec.get("volumes").items().iter().enumerate() {
        let at = path.child("volumes").index(i);
        let before = out.len();
        sources(out, v, &at, of);
        let name = v.str_at(&["name"]);
        if name.is_empty() {
            out.push(FieldError::required(&at.child("name"), ""));
        } else {
            invalid_each(out, &at.child("name"), name, dns1123_label(name));
            if found.has(name) {
                out.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
        if out.len() == before {
            found.0.push((name, v));
        }
    }
    found
}

fn sources(out: &mut ErrorList, v: &Value, at: &FieldPath, of: Of) {
    let mut count = 0;
    for (key, told) in SOURCES {
        if v.get(key).is_null() {
            continue;
        }
        count += 1;
        if count > 1 {
            let why = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&at.child(told), why));
        } else if *key == "image" {
            if of == Of::Pod && v.str_at(&["image", "reference"]).is_empty() {
                out.push(FieldError::required(&at.child("image").child("reference"), ""));
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            optional_choice(out, v.get("image"), "pullPolicy", &at.child("image"), &policies);
        } else {
            // The path is upstream's.
            let at = match *key {
                "gcePersistentDisk" => at.child("persistentDisk"),
                _ => at.child(key),
            };
            source(out, v, key, &at);
        }
    }
    if count == 0 {
        out.push(FieldError::required(at, "must specify a volume type"));
    }
}

/// One source, of a pod's volume or of a persistent one.
pub(in crate::controlplane::validation) fn source(out: &mut ErrorList, holder: &Value, key: &str, at: &FieldPath) {
    let v = holder.get(key);
    for (_, field) in REQUIRED.iter().filter(|(s, _)| *s == key) {
        if v.str_at(&[field]).is_empty() {
            out.push(FieldError::required(&at.child(field), ""));
        }
    }
    match key {
        "emptyDir" if quantity(v.get("sizeLimit")).is_some_and(is_negative) => {
            let why = "SizeLimit field must be a valid resource quantity";
            out.push(FieldError::forbidden(&at.child("sizeLimit"), why));
        }
        "hostPath" => {
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
        "gitRepo" => local_path(out, v.str_at(&["directory"]), &at.child("directory")),
        "nfs" => {
            let path = v.str_at(&["path"]);
            if !path.is_empty() && !path.starts_with('/') {
                out.push(FieldError::invalid(&at.child("path"), path, "must be an absolute path"));
            }
        }
        "secret" | "configMap" => {
            mode(out, v.get("defaultMode"), &at.child("defaultMode"));
            items(out, v, at);
        }
        "downwardAPI" => {
            mode(out, v.get("defaultMode"), &at.child("defaultMode"));
            downward(out, v, at);
        }
        "projected" => projected(out, v, at),
        "iscsi" => iscsi(out, v, at),
        "fc" => fibre_channel(out, v, at),
        "gcePersistentDisk" => {
            if v.str_at(&["pdName"]).is_empty() {
                out.push(FieldError::required(&at.child("pdName"), ""));
            }
            // Nought is fine, whatever the words say.
            if let Some(n) = v.get("partition").as_i64().filter(|n| !(0..=255).contains(n)) {
                let why = "must be between 1 and 255, inclusive";
                out.push(FieldError::invalid(&at.child("partition"), n, why));
            }
        }
        "flexVolume" => {
            let options = v.get("options").as_object();
            for key in options.into_iter().flat_map(|m| m.keys()) {
                let domain = key.split_once('/').map_or("", |(d, _)| d);
                let reserved = ["kubernetes.io", "k8s.io"];
                if reserved
                    .iter()
                    .any(|r| domain == *r || domain.ends_with(&format!(".{r}")))
                {
                    let why = "kubernetes.io and k8s.io namespaces are reserved";
                    out.push(FieldError::invalid(&at.child("options").key(key), key, why));
                }
            }
        }
        "azureDisk" => optional_choice(out, v, "kind", at, &["Dedicated", "Managed", "Shared"]),
        "csi" => {
            storage::driver(out, v.str_at(&["driver"]), &at.child("driver"));
            let secret = v.get("nodePublishSecretRef");
            if !secret.is_null() && secret.str_at(&["name"]).is_empty() {
                out.push(FieldError::required(
                    &at.child("nodePublishSecretRef").child("name"),
                    "",
                ));
            }
        }
        "ephemeral" => {
            let (template, at) = (v.get("volumeClaimTemplate"), at.child("volumeClaimTemplate"));
            if template.is_null() {
                out.push(FieldError::required(&at, ""));
            } else {
                claim_metadata(out, template.get("metadata"), &at.child("metadata"));
                claims::claim_spec(out, template.get("spec"), &at.child("spec"));
            }
        }
        _ => {}
    }
}

/// What a pod's volumes must be beyond those of a template: tokens have an account, and claims made for the pod are named
/// after it and belong to it alone.
pub(super) fn of_pod(out: &mut ErrorList, pod: &Value, path: &FieldPath) {
    let spec = pod.get("spec");
    if spec.str_at(&["serviceAccountName"]).is_empty() {
        for (i, v) in spec.get("volumes").items().iter().enumerate() {
            for (j, s) in v.at(&["projected", "sources"]).items().iter().enumerate() {
                if !s.get("serviceAccountToken").is_null() {
                    let at = path
                        .child("volumes")
                        .index(i)
                        .child("projected")
                        .child("sources")
                        .index(j);
                    let why = "must not be specified when serviceAccountName is not set";
                    out.push(FieldError::forbidden(&at.child("serviceAccountToken"), why));
                }
            }
        }
    }
    let volumes = spec.get("volumes").items();
    let made: Vec<String> = volumes
        .iter()
        .filter(|v| !v.get("ephemeral").is_null())
        .map(|v| format!("{}-{}", pod.name(), v.str_at(&["name"])))
        .collect();
    if pod.name().is_empty() {
        return;
    }
    for (i, v) in volumes.iter().enumerate() {
        let at = path.child("volumes").index(i);
        let claim = v.str_at(&["persistentVolumeClaim", "claimName"]);
        if made.iter().any(|m| m == claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            let at = at.child("persistentVolumeClaim").child("claimName");
            out.push(FieldError::invalid(&at, claim, why));
        }
        if !v.get("ephemeral").is_null() {
            let name = format!("{}-{}", pod.name(), v.str_at(&["name"]));
            for why in dns1123_subdomain(&name) {
                let text = format!("PVC name {name:?}: {why}");
                out.push(FieldError::invalid(&at.child("name"), v.str_at(&["name"]), text));
            }
        }
    }
}

/// A template of a claim says nothing of it but labels and annotations.
fn claim_metadata(out: &mut ErrorList, metadata: &Value, at: &FieldPath) {
    meta::validate_annotations(metadata.get("annotations"), &at.child("annotations"), out);
    meta::validate_labels(metadata.get("labels"), &at.child("labels"), out);
    for (key, v) in metadata.as_object().into_iter().flat_map(|m| m.iter()) {
        if !matches!(key, "labels" | "annotations" | "creationTimestamp") && !v.is_empty_value() {
            out.push(FieldError::forbidden(&at.child(key), "cannot be set"));
        }
    }
}

fn iscsi(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let iqn = v.str_at(&["iqn"]);
    let known = ["iqn", "eui", "naa"].iter().any(|p| iqn.starts_with(p));
    if !iqn.is_empty() && !known {
        let why = "must be valid format starting with iqn, eui, or naa";
        out.push(FieldError::invalid(&at.child("iqn"), iqn, why));
    }
    lun(out, v, at);
    let chap = |key: &str| v.get(key).as_bool() == Some(true);
    if (chap("chapAuthDiscovery") || chap("chapAuthSession")) && v.get("secretRef").is_null() {
        out.push(FieldError::required(&at.child("secretRef"), ""));
    }
    if let Some(name) = v.get("initiatorName").as_str()
        && !["iqn", "eui", "naa"].iter().any(|p| name.starts_with(p))
    {
        let why = "must be valid format starting with iqn, eui, or naa";
        // The spelling is upstream's.
        out.push(FieldError::invalid(&at.child("initiatorname"), name, why));
    }
}

fn lun(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.get("lun").as_i64().filter(|n| !(0..=255).contains(n)) {
        let why = "must be between 0 and 255, inclusive";
        out.push(FieldError::invalid(&at.child("lun"), n, why));
    }
}

fn fibre_channel(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (names, ids) = (v.get("targetWWNs").items(), v.get("wwids").items());
    let at_names = at.child("targetWWNs");
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            let why = "must specify either targetWWNs or wwids, but not both";
            out.push(FieldError::required(&at_names, why));
        }
        (false, false) => {
            let why = "targetWWNs and wwids can not be specified simultaneously";
            out.push(FieldError::invalid(&at_names, v.get("targetWWNs").clone(), why));
        }
        (false, true) if v.get("lun").is_null() => {
            out.push(FieldError::required(
                &at.child("lun"),
                "lun is required if targetWWNs is specified",
            ));
        }
        (false, true) => lun(out, v, at),
        (true, false) => {}
    }
}

fn mode(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.as_i64().filter(|n| !(0..=0o777).contains(n)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        out.push(FieldError::invalid(at, n, why));
    }
}

/// A file's place in a volume.
fn file_path(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
        return;
    }
    local_path(out, text, at);
    // Names that merely begin with two dots are refused too, but said once.
    if text.starts_with("..") && !text.starts_with("../") && text != ".." {
        out.push(FieldError::invalid(at, text, "must not start with '..'"));
    }
}

fn items(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    for (i, item) in v.get("items").items().iter().enumerate() {
        let at = at.child("items").index(i);
        if item.str_at(&["key"]).is_empty() {
            out.push(FieldError::required(&at.child("key"), ""));
        }
        file_path(out, item.str_at(&["path"]), &at.child("path"));
        mode(out, item.get("mode"), &at.child("mode"));
    }
}

fn downward(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    for item in v.get("items").items() {
        // Without indexes, as upstream.
        file_path(out, item.str_at(&["path"]), &at.child("path"));
        let (field, resource) = (item.get("fieldRef"), item.get("resourceFieldRef"));
        match (field.is_null(), resource.is_null()) {
            (true, true) => {
                let why = "one of fieldRef and resourceFieldRef is required";
                out.push(FieldError::required(&at.child("fieldRef"), why));
            }
            (false, resource_absent) => {
                field_ref(out, field, VOLUME_FIELDS, &at.child("fieldRef"));
                if !resource_absent {
                    let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                    out.push(FieldError::invalid(at, "resource", why));
                }
            }
            (true, false) => resource_ref(out, resource, true, &at.child("resourceFieldRef")),
        }
        mode(out, item.get("mode"), &at.child("mode"));
    }
}

fn projected(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    mode(out, v.get("defaultMode"), &path.child("defaultMode"));
    let mut files: Vec<&str> = Vec::new();
    let claim = |out: &mut ErrorList, files: &mut Vec<&str>, told: &str| {
        out.push(FieldError::invalid(path, told, "conflicting duplicate paths"));
        files.dedup();
    };
    for (i, s) in v.get("sources").items().iter().enumerate() {
        let at = path.child("sources").index(i);
        let said = s.as_object().map_or(0, |m| m.values().filter(|x| !x.is_null()).count());
        for key in ["secret", "configMap", "downwardAPI"] {
            let source = s.get(key);
            if source.is_null() {
                continue;
            }
            let name = source.str_at(&["name"]);
            if key == "downwardAPI" {
                downward(out, source, &at.child(key));
            } else {
                if name.is_empty() {
                    out.push(FieldError::required(&at.child(key).child("name"), ""));
                }
                items(out, source, &at.child(key));
            }
            for item in source.get("items").items() {
                let file = item.str_at(&["path"]);
                if !file.is_empty() && files.contains(&file) {
                    claim(out, &mut files, if name.is_empty() { file } else { name });
                }
                files.push(file);
            }
        }
        let token = s.get("serviceAccountToken");
        if !token.is_null() {
            self::token(out, token, &at.child("serviceAccountToken"), path);
            let file = token.str_at(&["path"]);
            if files.contains(&file) {
                claim(out, &mut files, file);
            }
            files.push(file);
        }
        if said > 1 {
            let why = "may not specify more than 1 volume type per source";
            out.push(FieldError::forbidden(&at, why));
        }
    }
}

fn token(out: &mut ErrorList, v: &Value, at: &FieldPath, volume: &FieldPath) {
    let seconds = v.get("expirationSeconds").as_i64().unwrap_or(3600);
    let seconds_at = at.child("expirationSeconds");
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        out.push(FieldError::invalid(&seconds_at, seconds, why));
    } else if seconds > 1 << 32 {
        let why = "may not specify a duration larger than 2^32 seconds";
        out.push(FieldError::invalid(&seconds_at, seconds, why));
    }
    match v.str_at(&["path"]) {
        "" => out.push(FieldError::required(&at.child("path"), "")),
        path => file_path(out, path, &volume.child("path")),
    }
}
