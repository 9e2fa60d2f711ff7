//! API groups beyond the built-in ones: kinds described by a JSON schema.
//!
//! [`schema`] reads a schema as a CustomResourceDefinition carries it and does everything a kind needs from it.

pub mod schema;
