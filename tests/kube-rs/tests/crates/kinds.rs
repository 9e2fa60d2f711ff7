//! The kinds of both crates, by module.

use super::Kind;
use k8s_openapi::List;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn text<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let object: T = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    serde_json::to_vec(&object).map_err(|e| e.to_string())
}

fn bytes<T: prost::Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, String> {
    T::decode(bytes).map(|m| m.encode_to_vec()).map_err(|e| e.to_string())
}

macro_rules! typed {
    ($out:ident, $module:path: $($kind:ident)* ; lists of: $($item:ident)*) => {{
        use $module as module;
        $($out.push(Kind::new(stringify!($module), stringify!($kind), text::<module::$kind>));)*
        $($out.push(Kind::new(stringify!($module), concat!(stringify!($item), "List"), text::<List<module::$item>>));)*
    }};
}

macro_rules! message {
    ($out:ident, $module:path: $($kind:ident)*) => {{
        use $module as module;
        $($out.push(Kind::new(stringify!($module), stringify!($kind), bytes::<module::$kind>));)*
    }};
}

/// Kinds of k8s-openapi.
#[rustfmt::skip]
pub fn typed() -> Vec<Kind> {
    let mut out = Vec::new();
    typed!(out, k8s_openapi::api::admissionregistration::v1:
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
        ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
        ; lists of:
        MutatingAdmissionPolicyBinding MutatingAdmissionPolicy MutatingWebhookConfiguration
        ValidatingAdmissionPolicyBinding ValidatingAdmissionPolicy ValidatingWebhookConfiguration
    );
    typed!(out, k8s_openapi::api::admissionregistration::v1alpha1:
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
        ; lists of:
        MutatingAdmissionPolicyBinding MutatingAdmissionPolicy
    );
    typed!(out, k8s_openapi::api::admissionregistration::v1beta1:
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
        ; lists of:
        MutatingAdmissionPolicyBinding MutatingAdmissionPolicy
    );
    typed!(out, k8s_openapi::api::apiserverinternal::v1alpha1:
        StorageVersion
        ; lists of:
        StorageVersion
    );
    typed!(out, k8s_openapi::api::apps::v1:
        ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet
        ; lists of:
        ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet
    );
    typed!(out, k8s_openapi::api::authentication::v1:
        SelfSubjectReview TokenRequest TokenReview
        ; lists of:
    );
    typed!(out, k8s_openapi::api::authorization::v1:
        LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
        ; lists of:
    );
    typed!(out, k8s_openapi::api::autoscaling::v1:
        HorizontalPodAutoscaler Scale
        ; lists of:
        HorizontalPodAutoscaler
    );
    typed!(out, k8s_openapi::api::autoscaling::v2:
        HorizontalPodAutoscaler
        ; lists of:
        HorizontalPodAutoscaler
    );
    typed!(out, k8s_openapi::api::batch::v1:
        CronJob Job
        ; lists of:
        CronJob Job
    );
    typed!(out, k8s_openapi::api::certificates::v1:
        CertificateSigningRequest
        ; lists of:
        CertificateSigningRequest
    );
    typed!(out, k8s_openapi::api::certificates::v1alpha1:
        ClusterTrustBundle
        ; lists of:
        ClusterTrustBundle
    );
    typed!(out, k8s_openapi::api::certificates::v1beta1:
        ClusterTrustBundle PodCertificateRequest
        ; lists of:
        ClusterTrustBundle PodCertificateRequest
    );
    typed!(out, k8s_openapi::api::coordination::v1:
        Lease
        ; lists of:
        Lease
    );
    typed!(out, k8s_openapi::api::coordination::v1alpha2:
        LeaseCandidate
        ; lists of:
        LeaseCandidate
    );
    typed!(out, k8s_openapi::api::coordination::v1beta1:
        LeaseCandidate
        ; lists of:
        LeaseCandidate
    );
    typed!(out, k8s_openapi::api::core::v1:
        Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
        PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service
        ServiceAccount
        ; lists of:
        ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolumeClaim
        PersistentVolume Pod PodTemplate ReplicationController ResourceQuota Secret ServiceAccount Service
    );
    typed!(out, k8s_openapi::api::discovery::v1:
        EndpointSlice
        ; lists of:
        EndpointSlice
    );
    typed!(out, k8s_openapi::api::events::v1:
        Event
        ; lists of:
        Event
    );
    typed!(out, k8s_openapi::api::flowcontrol::v1:
        FlowSchema PriorityLevelConfiguration
        ; lists of:
        FlowSchema PriorityLevelConfiguration
    );
    typed!(out, k8s_openapi::api::networking::v1:
        IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR
        ; lists of:
        IPAddress IngressClass Ingress NetworkPolicy ServiceCIDR
    );
    typed!(out, k8s_openapi::api::networking::v1beta1:
        IPAddress ServiceCIDR
        ; lists of:
        IPAddress ServiceCIDR
    );
    typed!(out, k8s_openapi::api::node::v1:
        RuntimeClass
        ; lists of:
        RuntimeClass
    );
    typed!(out, k8s_openapi::api::policy::v1:
        Eviction PodDisruptionBudget
        ; lists of:
        PodDisruptionBudget
    );
    typed!(out, k8s_openapi::api::rbac::v1:
        ClusterRole ClusterRoleBinding Role RoleBinding
        ; lists of:
        ClusterRoleBinding ClusterRole RoleBinding Role
    );
    typed!(out, k8s_openapi::api::resource::v1:
        DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
        ; lists of:
        DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
    );
    typed!(out, k8s_openapi::api::resource::v1alpha3:
        DeviceTaintRule ResourcePoolStatusRequest
        ; lists of:
        DeviceTaintRule ResourcePoolStatusRequest
    );
    typed!(out, k8s_openapi::api::resource::v1beta1:
        DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
        ; lists of:
        DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
    );
    typed!(out, k8s_openapi::api::resource::v1beta2:
        DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice
        ; lists of:
        DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice
    );
    typed!(out, k8s_openapi::api::scheduling::v1:
        PriorityClass
        ; lists of:
        PriorityClass
    );
    typed!(out, k8s_openapi::api::scheduling::v1alpha2:
        PodGroup Workload
        ; lists of:
        PodGroup Workload
    );
    typed!(out, k8s_openapi::api::storage::v1:
        CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
        ; lists of:
        CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
    );
    typed!(out, k8s_openapi::api::storage::v1beta1:
        VolumeAttributesClass
        ; lists of:
        VolumeAttributesClass
    );
    typed!(out, k8s_openapi::api::storagemigration::v1beta1:
        StorageVersionMigration
        ; lists of:
        StorageVersionMigration
    );
    typed!(out, k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1:
        CustomResourceDefinition
        ; lists of:
        CustomResourceDefinition
    );
    typed!(out, k8s_openapi::apimachinery::pkg::apis::meta::v1:
        APIGroup APIGroupList APIResourceList APIVersions DeleteOptions Status
        ; lists of:
    );
    typed!(out, k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1:
        APIService
        ; lists of:
        APIService
    );    out
}

/// Kinds of k8s-pb.
#[rustfmt::skip]
pub fn messages() -> Vec<Kind> {
    let mut out = Vec::new();
    message!(out, k8s_pb::api::admissionregistration::v1:
        MutatingWebhookConfiguration MutatingWebhookConfigurationList ValidatingAdmissionPolicy
        ValidatingAdmissionPolicyBinding ValidatingAdmissionPolicyBindingList ValidatingAdmissionPolicyList
        ValidatingWebhookConfiguration ValidatingWebhookConfigurationList
    );
    message!(out, k8s_pb::api::admissionregistration::v1alpha1:
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBindingList
        MutatingAdmissionPolicyList
    );
    message!(out, k8s_pb::api::admissionregistration::v1beta1:
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBindingList
        MutatingAdmissionPolicyList
    );
    message!(out, k8s_pb::api::apidiscovery::v2:
        APIGroupDiscovery APIGroupDiscoveryList
    );
    message!(out, k8s_pb::api::apiserverinternal::v1alpha1:
        StorageVersion StorageVersionList
    );
    message!(out, k8s_pb::api::apps::v1:
        ControllerRevision ControllerRevisionList DaemonSet DaemonSetList Deployment DeploymentList ReplicaSet
        ReplicaSetList StatefulSet StatefulSetList
    );
    message!(out, k8s_pb::api::authentication::v1:
        SelfSubjectReview TokenRequest TokenReview
    );
    message!(out, k8s_pb::api::authorization::v1:
        LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
    );
    message!(out, k8s_pb::api::autoscaling::v1:
        HorizontalPodAutoscaler HorizontalPodAutoscalerList Scale
    );
    message!(out, k8s_pb::api::autoscaling::v2:
        HorizontalPodAutoscaler HorizontalPodAutoscalerList
    );
    message!(out, k8s_pb::api::batch::v1:
        CronJob CronJobList Job JobList
    );
    message!(out, k8s_pb::api::certificates::v1:
        CertificateSigningRequest CertificateSigningRequestList
    );
    message!(out, k8s_pb::api::certificates::v1alpha1:
        ClusterTrustBundle ClusterTrustBundleList
    );
    message!(out, k8s_pb::api::certificates::v1beta1:
        ClusterTrustBundle ClusterTrustBundleList PodCertificateRequest PodCertificateRequestList
    );
    message!(out, k8s_pb::api::coordination::v1:
        Lease LeaseList
    );
    message!(out, k8s_pb::api::coordination::v1alpha2:
        LeaseCandidate LeaseCandidateList
    );
    message!(out, k8s_pb::api::coordination::v1beta1:
        LeaseCandidate LeaseCandidateList
    );
    message!(out, k8s_pb::api::core::v1:
        Binding ComponentStatus ComponentStatusList ConfigMap ConfigMapList Endpoints EndpointsList Event
        EventList LimitRange LimitRangeList Namespace NamespaceList Node NodeList PersistentVolume
        PersistentVolumeClaim PersistentVolumeClaimList PersistentVolumeList Pod PodList PodTemplate
        PodTemplateList RangeAllocation ReplicationController ReplicationControllerList ResourceQuota ResourceQuotaList Secret
        SecretList Service ServiceAccount ServiceAccountList ServiceList
    );
    message!(out, k8s_pb::api::discovery::v1:
        EndpointSlice EndpointSliceList
    );
    message!(out, k8s_pb::api::events::v1:
        Event EventList
    );
    message!(out, k8s_pb::api::flowcontrol::v1:
        FlowSchema FlowSchemaList PriorityLevelConfiguration PriorityLevelConfigurationList
    );
    message!(out, k8s_pb::api::networking::v1:
        IPAddress IPAddressList Ingress IngressClass IngressClassList IngressList NetworkPolicy
        NetworkPolicyList ServiceCIDR ServiceCIDRList
    );
    message!(out, k8s_pb::api::networking::v1beta1:
        IPAddress IPAddressList ServiceCIDR ServiceCIDRList
    );
    message!(out, k8s_pb::api::node::v1:
        RuntimeClass RuntimeClassList
    );
    message!(out, k8s_pb::api::policy::v1:
        Eviction PodDisruptionBudget PodDisruptionBudgetList
    );
    message!(out, k8s_pb::api::rbac::v1:
        ClusterRole ClusterRoleBinding ClusterRoleBindingList ClusterRoleList Role RoleBinding RoleBindingList
        RoleList
    );
    message!(out, k8s_pb::api::resource::v1:
        DeviceClass DeviceClassList ResourceClaim ResourceClaimList ResourceClaimTemplate
        ResourceClaimTemplateList ResourceSlice ResourceSliceList
    );
    message!(out, k8s_pb::api::resource::v1alpha3:
        DeviceTaintRule DeviceTaintRuleList
    );
    message!(out, k8s_pb::api::resource::v1beta1:
        DeviceClass DeviceClassList ResourceClaim ResourceClaimList ResourceClaimTemplate
        ResourceClaimTemplateList ResourceSlice ResourceSliceList
    );
    message!(out, k8s_pb::api::resource::v1beta2:
        DeviceClass DeviceClassList ResourceClaim ResourceClaimList ResourceClaimTemplate
        ResourceClaimTemplateList ResourceSlice ResourceSliceList
    );
    message!(out, k8s_pb::api::scheduling::v1:
        PriorityClass PriorityClassList
    );
    message!(out, k8s_pb::api::storage::v1:
        CSIDriver CSIDriverList CSINode CSINodeList CSIStorageCapacity CSIStorageCapacityList StorageClass
        StorageClassList VolumeAttachment VolumeAttachmentList VolumeAttributesClass VolumeAttributesClassList
    );
    message!(out, k8s_pb::api::storage::v1beta1:
        VolumeAttributesClass VolumeAttributesClassList
    );
    message!(out, k8s_pb::api::storagemigration::v1beta1:
        StorageVersionMigration StorageVersionMigrationList
    );
    message!(out, k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1:
        CustomResourceDefinition CustomResourceDefinitionList
    );
    message!(out, k8s_pb::apimachinery::pkg::apis::meta::v1:
        APIGroup APIGroupList APIResourceList APIVersions CreateOptions DeleteOptions GetOptions ListOptions
        PartialObjectMetadata PartialObjectMetadataList PatchOptions Status UpdateOptions WatchEvent
    );
    message!(out, k8s_pb::kube_aggregator::pkg::apis::apiregistration::v1:
        APIService APIServiceList
    );    out
}
