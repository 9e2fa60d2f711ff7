//! Built-in plugins.

mod forbidden;
pub mod limit_ranger;
pub mod namespace_lifecycle;
pub mod pod_security;
mod resources;
pub mod storage_protection;

pub use forbidden::forbidden;
pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use pod_security::{PodSecurity, PodSecurityConfig};
pub use storage_protection::StorageProtection;
