//! Extraction of references from pods and PersistentVolumes: [`Pod::parse`] and [`Volume::parse`]. Follows
//! upstream's `VisitPodSecretNames` and its siblings; the graph counts what is found.

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};

/// Type of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ObjectKind {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    ServiceAccount,
    ResourceClaim,
    Volume,
    Attachment,
    Slice,
}

/// An object referenced by a pod, in the pod's namespace.
pub(super) type Ref = (ObjectKind, Str);

/// The parts of a pod that the graph needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pod {
    /// Node name; empty if the pod is not scheduled.
    pub node: Str,
    /// Sorted, without duplicates.
    pub refs: Vec<Ref>,
}

/// The parts of a PersistentVolume that the graph needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Volume {
    /// `namespace/name` of the bound claim.
    pub claim: Option<Str>,
    /// `namespace/name` of the secrets that its driver needs on the node.
    pub secrets: Vec<Str>,
}

const MIRROR: &str = "kubernetes.io/config.mirror";

fn each<'a>(v: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> + use<'a> {
    v.at(path).items().iter()
}

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Calls `f` with the name of each Secret that a Pod uses, some more than once, as upstream's
/// `VisitPodSecretNames`.
pub(crate) fn for_each_secret(pod: &Value, mut f: impl FnMut(&str)) {
    let mut visit = |name: &str| {
        if !name.is_empty() {
            f(name);
        }
    };
    for s in each(pod, &["spec", "imagePullSecrets"]) {
        visit(s.str_at(&["name"]));
    }
    for c in CONTAINERS.iter().flat_map(|list| each(pod, &["spec", list])) {
        for e in each(c, &["env"]) {
            visit(e.str_at(&["valueFrom", "secretKeyRef", "name"]));
        }
        for e in each(c, &["envFrom"]) {
            visit(e.str_at(&["secretRef", "name"]));
        }
    }
    for volume in each(pod, &["spec", "volumes"]) {
        visit(volume.str_at(&["secret", "secretName"]));
        visit(volume.str_at(&["azureFile", "secretName"]));
        // Drivers removed long ago are still visited: stored pods may use them, and upstream's visitor does.
        for source in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            visit(volume.str_at(&[source, "secretRef", "name"]));
        }
        visit(volume.str_at(&["csi", "nodePublishSecretRef", "name"]));
        for s in each(volume, &["projected", "sources"]) {
            visit(s.str_at(&["secret", "name"]));
        }
    }
}

impl Pod {
    pub(crate) fn parse(v: &Value) -> Self {
        let node = Str::from(v.str_at(&["spec", "nodeName"]));
        // Mirror pods are created by the node itself. Their references must not grant it access to anything.
        if node.is_empty() || v.annotation(MIRROR).is_some() {
            return Self { node, refs: Vec::new() };
        }
        let mut refs = Vec::new();
        let mut add = |kind: ObjectKind, name: &str| {
            if !name.is_empty() {
                refs.push((kind, Str::from(name)));
            }
        };
        add(ObjectKind::ServiceAccount, v.str_at(&["spec", "serviceAccountName"]));
        for_each_secret(v, |name| add(ObjectKind::Secret, name));
        for list in CONTAINERS {
            for c in each(v, &["spec", list]) {
                for e in each(c, &["env"]) {
                    add(
                        ObjectKind::ConfigMap,
                        e.str_at(&["valueFrom", "configMapKeyRef", "name"]),
                    );
                }
                for e in each(c, &["envFrom"]) {
                    add(ObjectKind::ConfigMap, e.str_at(&["configMapRef", "name"]));
                }
            }
        }
        for volume in each(v, &["spec", "volumes"]) {
            add(ObjectKind::ConfigMap, volume.str_at(&["configMap", "name"]));
            for s in each(volume, &["projected", "sources"]) {
                add(ObjectKind::ConfigMap, s.str_at(&["configMap", "name"]));
            }
            add(
                ObjectKind::Claim,
                volume.str_at(&["persistentVolumeClaim", "claimName"]),
            );
            if !volume.get("ephemeral").is_null() {
                // A generic ephemeral volume's claim is named after the pod and the volume.
                add(ObjectKind::Claim, &format!("{}-{}", v.name(), volume.str_at(&["name"])));
            }
        }
        for claim in each(v, &["spec", "resourceClaims"]) {
            add(ObjectKind::ResourceClaim, claim.str_at(&["resourceClaimName"]));
        }
        for claim in each(v, &["status", "resourceClaimStatuses"]) {
            add(ObjectKind::ResourceClaim, claim.str_at(&["resourceClaimName"]));
        }
        add(
            ObjectKind::ResourceClaim,
            v.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]),
        );
        refs.sort_unstable();
        // Count each object once per pod, however many containers use it.
        refs.dedup();
        Self { node, refs }
    }
}

impl Volume {
    pub(crate) fn parse(v: &Value) -> Self {
        let namespace = v.str_at(&["spec", "claimRef", "namespace"]);
        let name = v.str_at(&["spec", "claimRef", "name"]);
        if name.is_empty() {
            return Self::default();
        }
        let mut secrets = Vec::new();
        let mut add = |ns: &str, name: &str| {
            // A secret reference without a namespace is in the namespace of the claim that the volume is
            // bound to.
            let ns = if ns.is_empty() { namespace } else { ns };
            if !name.is_empty() {
                secrets.push(Str::from(format!("{ns}/{name}")));
            }
        };
        let azure = v.at(&["spec", "azureFile"]);
        add(azure.str_at(&["secretNamespace"]), azure.str_at(&["secretName"]));
        for source in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            let s = v.at(&["spec", source, "secretRef"]);
            add(s.str_at(&["namespace"]), s.str_at(&["name"]));
        }
        for secret in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
            let s = v.at(&["spec", "csi", secret]);
            add(s.str_at(&["namespace"]), s.str_at(&["name"]));
        }
        Self {
            claim: Some(Str::from(format!("{namespace}/{name}"))),
            secrets,
        }
    }
}
