//! Metadata validation per built-in kind. Upstream's `Validate*Update` functions call `ValidateObjectMeta`
//! and `ValidateObjectMetaUpdate` in different combinations, some twice, and the causes of a 422 show it. The
//! table was derived from recorded upstream responses.

use crate::registry::strategy::{MetaChecks, UpdateOrder};

/// The metadata checks of a built-in kind, beyond those the registry applies to every kind.
pub(super) fn checks(group: &str, kind: &str) -> MetaChecks {
    match (group, kind) {
        // Only core/v1 Events; those of events.k8s.io are checked like most kinds.
        ("", "Event") | (_, "PodDisruptionBudget") => MetaChecks::NONE,
        (_, "RuntimeClass") => MetaChecks::BOTH.any_finalizers(),
        (_, "APIService") => MetaChecks::both_in(UpdateOrder::Old).any_finalizers(),
        (_, "ConfigMap" | "IngressClass" | "Secret" | "VolumeAttributesClass") => MetaChecks::both_in(UpdateOrder::Old),
        (_, "ControllerRevision" | "Endpoints" | "Ingress" | "PersistentVolumeClaim" | "Pod" | "ServiceAccount") => {
            MetaChecks::both_in(UpdateOrder::OldMetadata)
        }
        (_, "Lease" | "CustomResourceDefinition") => MetaChecks::AGAINST_OLD.any_finalizers(),
        (
            _,
            "ValidatingWebhookConfiguration"
            | "MutatingWebhookConfiguration"
            | "MutatingAdmissionPolicy"
            | "MutatingAdmissionPolicyBinding"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding",
        ) => MetaChecks::AS_NEW.any_finalizers(),
        (
            _,
            "LimitRange"
            | "EndpointSlice"
            | "CSINode"
            | "VolumeAttachment"
            | "FlowSchema"
            | "PriorityLevelConfiguration",
        ) => MetaChecks::AS_NEW,
        (_, "PersistentVolume") => MetaChecks {
            as_new: 2,
            in_subresources: true,
            ..MetaChecks::AS_NEW
        },
        (_, "CronJob") => MetaChecks {
            in_subresources: false,
            ..MetaChecks::AGAINST_OLD
        },
        (_, "StatefulSet") => MetaChecks {
            status_includes_metadata: true,
            ..MetaChecks::AGAINST_OLD
        },
        (_, "CertificateSigningRequest") => MetaChecks {
            status_includes_metadata: true,
            ..MetaChecks::BOTH
        },
        (
            _,
            "ResourceQuota"
            | "Event"
            | "PodTemplate"
            | "ReplicationController"
            | "Service"
            | "Deployment"
            | "DaemonSet"
            | "ReplicaSet"
            | "HorizontalPodAutoscaler"
            | "PriorityClass"
            | "NetworkPolicy"
            | "ServiceCIDR"
            | "CSIDriver"
            | "ResourceSlice",
        ) => MetaChecks::AGAINST_OLD,
        _ => MetaChecks::BOTH,
    }
}
