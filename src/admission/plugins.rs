//! Built-in plugins.

pub mod namespace_lifecycle;
pub use namespace_lifecycle::NamespaceLifecycle;
