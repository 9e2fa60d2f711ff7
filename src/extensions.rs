//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`custom_resources`] serves the resources that CustomResourceDefinitions define. [`naming`] is the controller that accepts
//! the names of definitions. [`schema`] reads and applies their schemas. [`api_server`] is the SDK for extension API
//! servers and embedded groups; `examples/extension-server` shows its use.

pub mod api_server;
pub mod conditions;
pub mod custom_resources;
pub mod naming;
pub mod schema;
