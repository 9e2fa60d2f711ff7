//! Built-in plugins.

pub mod namespace_lifecycle;
