//! Built-in plugins.

pub mod namespace_lifecycle;
pub mod storage_protection;

pub use namespace_lifecycle::NamespaceLifecycle;
pub use storage_protection::StorageProtection;
