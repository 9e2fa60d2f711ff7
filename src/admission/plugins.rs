//! Built-in plugins.

pub mod certificates;
pub mod claim_resize;
pub mod default_ingress_class;
pub mod default_storage_class;
pub mod default_toleration_seconds;
pub mod defaults;
mod forbidden;
pub mod limit_ranger;
pub mod namespace_lifecycle;
pub mod pod_resize;
pub mod pod_security;
pub mod pod_topology_labels;
pub mod pods;
pub mod priority;
mod resources;
pub mod runtime_class;
pub mod service_account;
pub mod storage_protection;
pub mod taint_nodes_by_condition;
pub mod tolerations;

pub use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
pub use claim_resize::PersistentVolumeClaimResize;
pub use default_ingress_class::DefaultIngressClass;
pub use default_storage_class::DefaultStorageClass;
pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use forbidden::forbidden;
pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use pod_resize::{NodeDeclaredFeatureValidator, PodResizeValidator};
pub use pod_security::{PodSecurity, PodSecurityConfig};
pub use pod_topology_labels::PodTopologyLabels;
pub use priority::Priority;
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use storage_protection::StorageProtection;
pub use taint_nodes_by_condition::TaintNodesByCondition;
