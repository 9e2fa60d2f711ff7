//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`api_server`] is the SDK for extension API servers and embedded groups; `examples/extension-server` shows its use.
//! [`schema`] reads and applies the schemas of CustomResourceDefinitions. [`naming`] is the controller that accepts the
//! names of definitions. [`columns`], [`selectable`] and [`scale`] read the table columns, selectable fields and scale
//! subresource of a version.

pub mod api_server;
pub mod columns;
pub mod naming;
pub mod scale;
pub mod schema;
pub mod selectable;
