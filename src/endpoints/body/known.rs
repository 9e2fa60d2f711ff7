//! Kinds known from upstream's scheme that are no longer served, so that a document of such a kind is
//! rejected for its version instead of as unknown.

use crate::api;
use crate::apimachinery::gvk::GroupVersionKind;

/// Retired versions by group, with their kinds; versions with schemas in `api` are not repeated.
const RETIRED: &[(&str, &str, &[&str])] = &[
    ("admissionregistration.k8s.io", "v1alpha1", POLICIES),
    ("admissionregistration.k8s.io", "v1beta1", POLICIES),
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    ),
    ("apiextensions.k8s.io", "v1beta1", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", "v1beta1", &["APIService"]),
    (
        "apps",
        "v1beta1",
        &["ControllerRevision", "Deployment", "Scale", "StatefulSet"],
    ),
    (
        "apps",
        "v1beta2",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "Scale",
            "StatefulSet",
        ],
    ),
    ("authentication.k8s.io", "v1alpha1", &["SelfSubjectReview"]),
    (
        "authentication.k8s.io",
        "v1beta1",
        &["SelfSubjectReview", "TokenReview"],
    ),
    (
        "authorization.k8s.io",
        "v1beta1",
        &["LocalSubjectAccessReview", "SelfSubjectAccessReview"],
    ),
    (
        "authorization.k8s.io",
        "v1beta1",
        &["SelfSubjectRulesReview", "SubjectAccessReview"],
    ),
    ("batch", "v1beta1", &["CronJob"]),
    ("certificates.k8s.io", "v1beta1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", "v1beta1", &["Lease"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    (
        "extensions",
        "v1beta1",
        &[
            "DaemonSet",
            "Deployment",
            "Ingress",
            "NetworkPolicy",
            "ReplicaSet",
            "Scale",
        ],
    ),
    ("flowcontrol.apiserver.k8s.io", "v1beta1", FLOWS),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", FLOWS),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", FLOWS),
    ("networking.k8s.io", "v1beta1", &["Ingress", "IngressClass"]),
    ("node.k8s.io", "v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io", "v1beta1", &["RuntimeClass"]),
    ("policy", "v1beta1", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1alpha1", RBAC),
    ("rbac.authorization.k8s.io", "v1beta1", RBAC),
    ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    (
        "storage.k8s.io",
        "v1alpha1",
        &["CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"],
    ),
    (
        "storage.k8s.io",
        "v1beta1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
        ],
    ),
];
const POLICIES: &[&str] = &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
const FLOWS: &[&str] = &["FlowSchema", "PriorityLevelConfiguration"];
const RBAC: &[&str] = &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// True if upstream's scheme contains this kind, served or not.
pub(crate) fn is_known(kind: &GroupVersionKind) -> bool {
    let retired = |(group, version, kinds): &(&str, &str, &[&str])| {
        *group == kind.group.as_str() && *version == kind.version.as_str() && kinds.contains(&kind.kind.as_str())
    };
    api::by_gvk(&kind.group, &kind.version, &kind.kind).is_some() || RETIRED.iter().any(retired)
}

/// True if both are versions of the same kind. Some kinds moved between groups.
pub(crate) fn same_kind(a: &GroupVersionKind, b: &GroupVersionKind) -> bool {
    a.kind == b.kind && home(a) == home(b)
}

fn home(kind: &GroupVersionKind) -> &str {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps" | "extensions", "Scale") => "autoscaling",
        ("extensions", "DaemonSet" | "Deployment" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        ("", "Event") => "events.k8s.io",
        (group, _) => group,
    }
}
