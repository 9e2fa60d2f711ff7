//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`custom_resources`] serves the resources that CustomResourceDefinitions define. [`definitions`] validates definitions,
//! [`naming`] is the controller that accepts their names, [`schema`] reads and applies their schemas, and [`conversion`]
//! converts objects between their versions. [`api_server`] is the SDK for extension API servers and embedded groups;
//! `examples/extension-server` shows its use.

pub mod api_server;
pub mod conversion;
pub mod custom_resources;
pub mod definitions;
pub mod naming;
pub mod schema;
