//! Built-in plugins.

mod forbidden;
pub mod namespace_lifecycle;
pub mod pod_security;
pub mod storage_protection;

pub use forbidden::forbidden;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use pod_security::{PodSecurity, PodSecurityConfig};
pub use storage_protection::StorageProtection;
