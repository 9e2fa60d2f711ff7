//! Kinds known from upstream's scheme that are no longer served, so that a document of such a kind is
//! rejected for its version instead of as unknown.

use crate::api;
use crate::apimachinery::gvk::GroupVersionKind;

/// The files and lines in which upstream v1.36 creates the schemes of its servers. They are part of error messages.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
const EXTENSIONS_SCHEME: &str = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55";
const AGGREGATOR_SCHEME: &str = "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28";
/// That of the Scales of custom resources, which contains nothing else.
pub(super) const SCALE_SCHEME: &str = "k8s.io/client-go/scale/util.go:146";
/// The version name of upstream's types that are independent of any version.
pub(crate) const INTERNAL_VERSION: &str = "__internal";
/// Kinds that all schemes contain.
const COMMON: [&str; 6] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "DeleteOptions",
    "Status",
];

/// Retired versions by group, with their kinds; versions with schemas in `api` are not repeated.
const RETIRED: &[(&str, &str, &[&str])] = &[
    // These were never served.
    (
        "",
        "v1",
        &["List", "PodStatusResult", "RangeAllocation", "SerializedReference"],
    ),
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
    api::by_gvk(&kind.group, &kind.version, &kind.kind).is_some()
        || RETIRED.iter().any(retired)
        // Upstream registers an internal type for every kind that has an external one.
        || kind.version.as_str() == INTERNAL_VERSION && is_in_some_version(kind)
}

fn is_in_some_version(kind: &GroupVersionKind) -> bool {
    let same = |(group, _, name): &(&str, &str, &str)| *group == kind.group.as_str() && *name == kind.kind.as_str();
    api::types().iter().any(|def| def.gvks.iter().any(same))
}

/// The name of the scheme of the server that serves this group.
pub(crate) fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => EXTENSIONS_SCHEME,
        "apiregistration.k8s.io" => AGGREGATOR_SCHEME,
        _ => SCHEME,
    }
}

/// True if the scheme of the server that serves `expected` contains the known kind `given`.
pub(crate) fn share_scheme(given: &GroupVersionKind, expected: &GroupVersionKind) -> bool {
    scheme(&given.group) == scheme(&expected.group) || COMMON.contains(&given.kind.as_str())
}

/// True if both are versions of the same kind, which then convert into each other. Some kinds moved between groups.
pub(crate) fn same_kind(a: &GroupVersionKind, b: &GroupVersionKind) -> bool {
    a.kind == b.kind && home(a) == home(b)
}

/// The group of the kind's internal type.
fn home(kind: &GroupVersionKind) -> &str {
    match (kind.group.as_str(), kind.kind.as_str()) {
        // Upstream converts these through one internal type, whichever group they are served in.
        ("apps" | "extensions", "Scale") => "autoscaling",
        ("extensions", "DaemonSet" | "Deployment" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        ("", "Event") => "events.k8s.io",
        (group, _) => group,
    }
}
