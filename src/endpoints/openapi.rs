//! OpenAPI documents out of rows: operations of every verb, and the schemas they name.
//!
//! [`operations`] says which operations a group version has, [`paths`] writes them down in either dialect,
//! [`OpenApiV3`] and [`OpenApiV2`] serve documents that are built on first use and kept compressed.

pub mod gnostic;
pub mod kept;
pub mod operations;
pub mod paths;
pub mod small;
pub mod v2;
pub mod v3;

pub use v2::OpenApiV2;
pub use v3::{OpenApiV3, group_version_document};
