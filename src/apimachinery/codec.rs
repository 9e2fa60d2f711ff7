//! Encodings of the object tree.

pub mod cbor;
pub mod go_syntax;
pub mod json;
pub mod protobuf;
pub mod yaml;
