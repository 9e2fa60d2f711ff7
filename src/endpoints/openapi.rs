//! OpenAPI documents generated from resources: the operations of all verbs, and the schemas they refer to.
//!
//! [`operations`] lists the operations of a group version, [`paths`] renders them in either dialect. [`OpenApiV3`]
//! and [`OpenApiV2`] serve the documents, which are built on first use and kept compressed. Schemas come from
//! `api::openapi`.

pub mod cached;
pub mod core_documents;
mod described;
pub mod gnostic;
pub mod operations;
pub mod paths;
pub mod v2;
pub mod v3;

pub use v2::OpenApiV2;
pub use v3::{OpenApiV3, group_version_document};
