//! Metadata validation per built-in kind. Upstream's `Validate*Update` functions call `ValidateObjectMeta`
//! and `ValidateObjectMetaUpdate` in different combinations, some twice, and the causes of a 422 show it. The
//! table was derived from recorded upstream responses.

use crate::registry::strategy::{MetaChecks, UpdateOrder};

/// The metadata checks of a built-in kind, beyond those the registry applies to every kind.
pub(super) fn checks(kind: &str) -> MetaChecks {
    match kind {
        // The strategy of events.k8s.io checks the metadata of its Events between other fields.
        "Event" | "PodDisruptionBudget" => MetaChecks::NONE,
        "RuntimeClass" => MetaChecks::BOTH.any_finalizers(),
        "APIService" => MetaChecks::both_in(UpdateOrder::Old).any_finalizers(),
        "ConfigMap" | "IngressClass" | "Secret" | "VolumeAttributesClass" => MetaChecks::both_in(UpdateOrder::Old),
        "ControllerRevision" | "Endpoints" | "Ingress" | "PersistentVolumeClaim" | "Pod" | "ServiceAccount" => {
            MetaChecks::both_in(UpdateOrder::OldMetadata)
        }
        "DeviceClass" | "ResourceClaim" => MetaChecks::both_in(UpdateOrder::Metadata),
        "Lease" | "CustomResourceDefinition" => MetaChecks::AGAINST_OLD.any_finalizers(),
        "ValidatingWebhookConfiguration"
        | "MutatingWebhookConfiguration"
        | "MutatingAdmissionPolicy"
        | "MutatingAdmissionPolicyBinding"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding" => MetaChecks::AS_NEW.any_finalizers(),
        "LimitRange" | "EndpointSlice" | "CSINode" | "FlowSchema" | "PriorityLevelConfiguration" => MetaChecks::AS_NEW,
        // Upstream validates the whole object after an update of its status.
        "VolumeAttachment" => MetaChecks {
            status_as_new: true,
            ..MetaChecks::AS_NEW
        },
        "PersistentVolume" => MetaChecks {
            as_new: 2,
            in_subresources: true,
            ..MetaChecks::AS_NEW
        },
        "CronJob" => MetaChecks {
            in_subresources: false,
            ..MetaChecks::AGAINST_OLD
        },
        "StatefulSet" => MetaChecks {
            status_includes_metadata: true,
            ..MetaChecks::AGAINST_OLD
        },
        "CertificateSigningRequest" => MetaChecks {
            status_includes_metadata: true,
            ..MetaChecks::BOTH
        },
        "ResourceQuota"
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
        | "ResourceSlice" => MetaChecks::AGAINST_OLD,
        _ => MetaChecks::BOTH,
    }
}
