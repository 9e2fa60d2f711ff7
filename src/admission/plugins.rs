//! Built-in plugins.

pub mod namespace_lifecycle;
pub mod pod_resize;
pub mod storage_protection;

pub use namespace_lifecycle::NamespaceLifecycle;
pub use pod_resize::PodResize;
pub use storage_protection::StorageProtection;
