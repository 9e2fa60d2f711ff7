//! OpenAPI documents generated from resources: the operations of all verbs, and the schemas they refer to.
//!
//! [`operations`] lists the operations of a group version, [`paths`] renders them in either dialect.
//! [`OpenApiV3`] and [`OpenApiV2`] serve the documents, which are built on first use and kept compressed.
//! Schemas come from `api::openapi`.

pub(crate) mod cached;
pub(crate) mod content;
pub(crate) mod core_documents;
mod described;
pub(crate) mod gnostic;
pub(crate) mod operations;
pub(crate) mod paths;
pub(crate) mod v2;
pub(crate) mod v3;

pub(crate) use v2::OpenApiV2;
pub(crate) use v3::{OpenApiV3, write_group_version};
