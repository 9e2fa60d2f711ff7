//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`api_server`] is the SDK for extension API servers and embedded groups; `examples/extension-server` shows its use.
//! [`conversion`] converts objects between the versions of a definition. [`schema`] reads and applies the schemas of CustomResourceDefinitions. [`naming`] is the controller that accepts the
//! names of definitions.

pub mod api_server;
pub mod conversion;
pub mod naming;
pub mod schema;
