//! Codecs for the object tree: JSON, YAML, CBOR and the protobuf envelope.
//!
//! Each codec is a module of its own. [`budget`] bounds the memory a decoder may use; [`strict_errors`]
//! collects the warnings of a decoder; [`InFile`] adds the name of a file to an error. Media type negotiation
//! is left to `endpoints`.

pub mod budget;
pub mod cbor;
mod go_syntax;
mod in_file;
pub mod json;
pub mod protobuf;
pub mod strict_errors;
pub mod yaml;

pub use in_file::InFile;

/// Errors whose messages clients read become the message of a 400 (`Status::bad_request` takes them).
macro_rules! messages {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for String {
            fn from(error: $error) -> Self {
                error.to_string()
            }
        }
    )+};
}

messages!(
    budget::OverBudget,
    cbor::Error,
    json::Error,
    protobuf::OpenError,
    yaml::Error,
    crate::selector::fields::Error,
    crate::selector::labels::Error,
    crate::time::Error,
);

/// Encodes bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    digits.map(|d| char::from(DIGITS[usize::from(d)])).collect()
}
