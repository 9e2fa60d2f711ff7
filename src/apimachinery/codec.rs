//! Encodings of the object tree.

pub mod json;
pub mod yaml;
