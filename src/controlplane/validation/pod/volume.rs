//! Validation of a pod's volumes. The rules of each source are in `validation::sources`.

use super::super::sources::{self, SourceOwner};
use super::Of;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_label, dns1123_subdomain};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{Seen, invalid_each, required_choice};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

/// The valid volumes of a pod, by name. References to invalid ones are reported as not found, as upstream.
pub(super) struct Volumes<'a>(HashMap<&'a str, &'a Value>);

impl Volumes<'_> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// True if the volume's source allows block mode.
    pub(super) fn is_block(&self, name: &str) -> bool {
        let found = self.0.get(name);
        found.is_some_and(|v| !v.get("persistentVolumeClaim").is_null() || !v.get("ephemeral").is_null())
    }
}

/// Sources in upstream's order, each with its name in the error path if it is not the first one. Misspellings
/// (`downwarAPI`) are upstream's.
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

/// Checks a pod's volumes and returns the valid ones.
pub(super) fn volumes<'a>(out: &mut ErrorList, spec: &'a Value, path: &FieldPath, of: Of<'_>) -> Volumes<'a> {
    let mut found = Volumes(HashMap::new());
    let all = spec.get("volumes").items();
    // Names of the claims that the ephemeral volume controller will generate for this pod.
    let made: Seen<String> = match of {
        Of::Pod { name, .. } if !name.is_empty() => all
            .iter()
            .filter(|v| !v.get("ephemeral").is_null())
            .map(|v| format!("{name}-{}", v.str_at(&["name"])))
            .collect(),
        _ => Seen::new(),
    };
    for (i, v) in all.iter().enumerate() {
        checkpoint();
        let at = path.child("volumes").index(i);
        // A volume is valid if its checks add no error; `len` also counts errors beyond the list's capacity.
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
            // The first of several volumes with one name is kept; the others are duplicates.
            found.0.entry(name).or_insert(v);
        }
        let claim = v.str_at(&["persistentVolumeClaim", "claimName"]);
        // Both volumes would fight over one claim. Reported, but the volume stays valid for its mounts.
        if !claim.is_empty() && made.contains(&claim.to_owned()) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            let at = at.child("persistentVolumeClaim").child("claimName");
            out.push(FieldError::invalid(&at, claim, why));
        }
    }
    found
}

fn sources(out: &mut ErrorList, v: &Value, at: &FieldPath, of: Of<'_>) {
    let name = v.str_at(&["name"]);
    let mut count = 0;
    for (key, field) in SOURCES {
        if v.get(key).is_null() {
            continue;
        }
        count += 1;
        // Only the first source is validated in depth.
        if count > 1 {
            let why = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&at.child(field), why));
        } else {
            sources::source(out, v, key, at, SourceOwner::Pod(name));
            match (*key, of) {
                ("ephemeral", Of::Pod { name: pod, .. }) if !pod.is_empty() && !name.is_empty() => {
                    let claim = format!("{pod}-{name}");
                    // At the volume's name, the only part of the claim's name that the client can choose
                    // freely.
                    for why in dns1123_subdomain(&claim) {
                        let text = format!("PVC name {claim:?}: {why}");
                        out.push(FieldError::invalid(&at.child("name"), name, text));
                    }
                }
                ("image", of) => image(out, v.get("image"), &at.child("image"), of),
                _ => {}
            }
        }
    }
    if count == 0 {
        out.push(FieldError::required(at, "must specify a volume type"));
    }
}

fn image(out: &mut ErrorList, v: &Value, at: &FieldPath, of: Of<'_>) {
    // A workload's template may leave the reference to admission, such as a webhook that sets it.
    if matches!(of, Of::Pod { .. }) && v.str_at(&["reference"]).is_empty() {
        out.push(FieldError::required(&at.child("reference"), ""));
    }
    required_choice(out, v, "pullPolicy", at, &["Always", "IfNotPresent", "Never"]);
}

/// Checks that projected service account tokens have a service account.
pub(super) fn tokens(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    // Admission fills in `default`, so only servers without it get past this.
    if !spec.str_at(&["serviceAccountName"]).is_empty() {
        return;
    }
    for (i, v) in spec.get("volumes").items().iter().enumerate() {
        for (j, s) in v.at(&["projected", "sources"]).items().iter().enumerate() {
            if !s.get("serviceAccountToken").is_null() {
                let at = path.child("volumes").index(i).child("projected");
                let at = at.child("sources").index(j).child("serviceAccountToken");
                let why = "must not be specified when serviceAccountName is not set";
                out.push(FieldError::forbidden(&at, why));
            }
        }
    }
}
