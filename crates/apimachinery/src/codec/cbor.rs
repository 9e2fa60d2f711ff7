//! CBOR (RFC 8949) with the restrictions of Kubernetes' `CBORServingAndStorage` format, as configured in
//! upstream's `runtime/serializer/cbor/internal/modes`.
//!
//! Start at [`to_vec`] and [`decode`]. The encoder writes the self-described tag, byte strings for strings
//! and keys, keys sorted by their encoding, the shortest exact float, and definite lengths. The decoder also
//! accepts text strings, indefinite lengths and expected-conversion tags. It rejects duplicate keys, bignums,
//! NaN and infinities.
//!
//! ```
//! use torana_apimachinery::codec::cbor;
//! use torana_apimachinery::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let object = json!({"kind": "Pod", "spec": {"replicas": 3}});
//! let bytes = cbor::to_vec(&object);
//! assert!(bytes.starts_with(&[0xd9, 0xd9, 0xf7]));
//! assert_eq!(cbor::decode(&bytes)?, object);
//! # Ok(())
//! # }
//! ```

mod decode;

pub use decode::{Error, decode};

use crate::value::Value;

/// Media type of a single document.
pub const CONTENT_TYPE: &str = "application/cbor";
/// Media type of a sequence of documents, such as a watch.
pub const STREAM_TYPE: &str = "application/cbor-seq";
/// Tag 55799, which starts every document written.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Encodes a document, which begins with the self-described tag.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    write(&mut out, value);
    out
}

/// Appends the encoding of a value nested in a document, without the self-described tag.
pub fn append(value: &Value, out: &mut Vec<u8>) {
    write(out, value);
}

/// Appends the head of an array; the caller appends its `items` elements.
pub fn append_array_head(items: usize, out: &mut Vec<u8>) {
    head(out, ARRAY, items as u64);
}

/// Encodes a watch event of type `kind` with its object.
pub fn event(kind: &str, object: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    head(&mut out, MAP, 2);
    string(&mut out, "type");
    string(&mut out, kind);
    string(&mut out, "object");
    write(&mut out, object);
    out
}

fn head(out: &mut Vec<u8>, major: u8, n: u64) {
    let major = major << 5;
    let wide = n.to_be_bytes();
    // The bounds of each arm guarantee that the bytes cut off are zero.
    match n {
        0..=23 => out.push(major | wide[7]),
        24..=0xff => out.extend_from_slice(&[major | 24, wide[7]]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&wide[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&wide[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&wide);
        }
    }
}

fn string(out: &mut Vec<u8>, s: &str) {
    head(out, BYTES, s.len() as u64);
    out.extend_from_slice(s.as_bytes());
}

/// The half-precision representation of a float, if it is exact.
fn half_bits(f: f64) -> Option<u16> {
    let bits = f.to_bits();
    let sign = (bits >> 48) as u16 & 0x8000;
    // Works on the absolute value, because -0.0 and 0.0 must take the same path and keep their sign bit.
    let magnitude = f.abs();
    // Below 2^-14, half precision is subnormal: multiples of 2^-24. Scaling by a power of two is exact.
    if magnitude < 2f64.powi(-14) {
        let steps = magnitude * 2f64.powi(24);
        return (steps.fract() == 0.0).then_some(sign | steps as u16);
    }
    // Infinite and NaN values have exponent 1024 and are not exact here; values of ours are finite.
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    let mantissa = bits & ((1 << 52) - 1);
    let exact = exponent <= 15 && mantissa & ((1 << 42) - 1) == 0;
    exact.then(|| sign | ((exponent + 15) as u16) << 10 | (mantissa >> 42) as u16)
}

/// Converts a half-precision float.
fn half_value(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    // Exponent 31 is reserved for infinities and NaN, which the caller rejects; they are produced so that it can
    // tell.
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

fn float(out: &mut Vec<u8>, f: f64) {
    // The narrowest exact form is upstream's `ShortestFloat16`; a double that fits a half must not be written wider.
    let single = f as f32;
    if let Some(half) = half_bits(f) {
        out.push(0xf9);
        out.extend_from_slice(&half.to_be_bytes());
    } else if f64::from(single) == f {
        out.push(0xfa);
        out.extend_from_slice(&single.to_be_bytes());
    } else {
        out.push(0xfb);
        out.extend_from_slice(&f.to_be_bytes());
    }
}

fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(b) => out.push(0xf4 | u8::from(*b)),
        // CBOR encodes a negative number as -1 - n; n is its bitwise complement.
        Value::Int(i) if *i < 0 => head(out, NEGATIVE, !*i as u64),
        Value::Int(i) => head(out, UNSIGNED, *i as u64),
        Value::Float(f) => float(out, *f),
        Value::String(s) => string(out, s),
        Value::Array(items) => {
            head(out, ARRAY, items.len() as u64);
            for item in items {
                write(out, item);
            }
        }
        Value::Object(map) => {
            head(out, MAP, map.len() as u64);
            let mut pairs: Vec<(&str, &Value)> = map.iter().collect();
            // An encoded key starts with its length, so shorter keys sort first. The map is already in byte
            // order, and the sort is stable.
            pairs.sort_by_key(|(k, _)| k.len());
            for (k, v) in pairs {
                string(out, k);
                write(out, v);
            }
        }
    }
}

#[cfg(test)]
mod tests;
