//! Encodings of the object tree.

pub mod budget;
pub mod cbor;
pub mod findings;
pub mod go_syntax;
pub mod json;
pub mod pem;
pub mod protobuf;
pub mod yaml;

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    digits.map(|d| char::from(DIGITS[usize::from(d)])).collect()
}
