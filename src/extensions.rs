//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`api_server`] is the SDK for extension API servers and embedded groups; `examples/extension-server` shows its use.
//! [`definitions`] validates CustomResourceDefinitions, [`schema`] reads and applies their schemas, and [`naming`] is the
//! controller that accepts their names.

pub mod api_server;
pub mod definitions;
pub mod naming;
pub mod schema;
