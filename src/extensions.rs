//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`schema`] reads a schema as a CustomResourceDefinition carries it and does everything a kind needs from it.
//! [`naming`] gives definitions their names. [`api_server`] puts such kinds behind a filter chain and a port: an API server of one's own. `examples/extension-server`
//! shows the whole.

pub mod api_server;
pub mod naming;
pub mod schema;
