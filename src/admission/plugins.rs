//! Built-in plugins.

pub mod default_toleration_seconds;
pub mod namespace_lifecycle;
pub mod pods;
pub mod priority;
pub mod runtime_class;
pub mod service_account;
pub mod storage_protection;
pub mod taint_nodes_by_condition;
pub mod tolerations;

pub use default_toleration_seconds::DefaultTolerationSeconds;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use priority::Priority;
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use storage_protection::StorageProtection;
pub use taint_nodes_by_condition::TaintNodesByCondition;
