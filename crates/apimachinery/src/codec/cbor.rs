//! CBOR (RFC 8949) with the restrictions of Kubernetes' `CBORServingAndStorage` format, as configured in upstream's
//! `runtime/serializer/cbor/internal/modes`.
//!
//! Start at [`to_vec`] and [`decode`]. The encoder writes the self-described tag, byte strings for strings and keys,
//! keys sorted by their encoding, the shortest exact float, and definite lengths. The decoder also accepts text
//! strings, indefinite lengths and expected-conversion tags. It rejects duplicate keys, bignums, NaN and infinities.

use super::budget::{DecodeBudget, ITEM, PAIR};
use super::hex;
use super::json::MAX_DEPTH;
use crate::value::{Map, Str, Value};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::borrow::Cow;

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

/// Encodes a document.
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
    let magnitude = f.abs();
    // Below 2^-14, half precision is subnormal: multiples of 2^-24. Scaling by a power of two is exact.
    if magnitude < 2f64.powi(-14) {
        let steps = magnitude * 2f64.powi(24);
        return (steps.fract() == 0.0).then_some(sign | steps as u16);
    }
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    let mantissa = bits & ((1 << 52) - 1);
    let exact = exponent <= 15 && mantissa & ((1 << 42) - 1) == 0;
    exact.then(|| sign | ((exponent + 15) as u16) << 10 | (mantissa >> 42) as u16)
}

/// Converts a half-precision float.
fn half_value(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

fn float(out: &mut Vec<u8>, f: f64) {
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
            // An encoded key starts with its length, so shorter keys sort first. The map is already in byte order,
            // and the sort is stable.
            pairs.sort_by_key(|(k, _)| k.len());
            for (k, v) in pairs {
                string(out, k);
                write(out, v);
            }
        }
    }
}

/// Decodes one document; trailing data is an error. Memory is limited to [`DecodeBudget::of_body`].
///
/// # Errors
/// Returns the message for a 400.
pub fn decode(bytes: &[u8]) -> Result<Value, String> {
    let mut d = Decoder {
        rest: bytes,
        budget: DecodeBudget::of_body(bytes.len()),
    };
    let value = d.item(0)?;
    match d.rest.len() {
        0 => Ok(value),
        n => Err(format!(
            "cbor: {n} bytes of extraneous data starting at index {}",
            bytes.len() - n
        )),
    }
}

struct Decoder<'a> {
    rest: &'a [u8],
    budget: DecodeBudget,
}

/// The initial byte of an item with its argument.
struct Head {
    major: u8,
    /// The argument; `None` for an indefinite length or a break.
    n: Option<u64>,
    info: u8,
}

const BREAK: u8 = 0xff;

impl<'a> Decoder<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], String> {
        let n = usize::try_from(n).map_err(|_| "unexpected EOF".to_owned())?;
        let (taken, rest) = self.rest.split_at_checked(n).ok_or("unexpected EOF")?;
        self.rest = rest;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, String> {
        let first = self.take(1)?[0];
        let (major, info) = (first >> 5, first & 31);
        let n = match info {
            0..=23 => Some(u64::from(info)),
            24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
            }
            31 if !matches!(major, UNSIGNED | NEGATIVE | TAG) => None,
            _ => {
                return Err(format!(
                    "cbor: invalid additional information {info} for major type {major}"
                ));
            }
        };
        Ok(Head { major, n, info })
    }

    /// Consumes a break and returns true if it is the next byte.
    fn broken(&mut self) -> Result<bool, String> {
        let ends = *self.rest.first().ok_or("unexpected EOF")? == BREAK;
        if ends {
            self.rest = &self.rest[1..];
        }
        Ok(ends)
    }

    fn item(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("cbor: exceeded max nested level {MAX_DEPTH}"));
        }
        self.budget.checkpoint();
        let head = self.head()?;
        match (head.major, head.n) {
            (UNSIGNED, Some(n)) => match i64::try_from(n) {
                Ok(i) => Ok(Value::Int(i)),
                Err(_) => Err(format!("cbor: {n} overflows Go's int64")),
            },
            (NEGATIVE, Some(n)) => match i64::try_from(n) {
                Ok(i) => Ok(Value::Int(!i)),
                Err(_) => Err(format!("cbor: -1-{n} overflows Go's int64")),
            },
            (BYTES | TEXT, _) => Ok(Value::String(text(self.string(&head)?)?)),
            (ARRAY, n) => self.array(n, depth),
            (MAP, n) => self.map(n, depth),
            (TAG, Some(tag)) => self.tagged(tag, depth),
            _ => simple(&head),
        }
    }

    fn string(&mut self, head: &Head) -> Result<Cow<'a, [u8]>, String> {
        if let Some(n) = head.n {
            let bytes = self.take(n)?;
            self.budget.string(bytes.len())?;
            return Ok(bytes.into());
        }
        let mut out = Vec::new();
        while !self.broken()? {
            let chunk = self.head()?;
            match chunk.n {
                Some(n) if chunk.major == head.major => out.extend_from_slice(self.take(n)?),
                _ => return Err("cbor: wrong element type for an indefinite-length string".to_owned()),
            }
        }
        self.budget.string(out.len())?;
        Ok(out.into())
    }

    /// True if the container has another element; counts it.
    fn more(&mut self, left: &mut Option<u64>) -> Result<bool, String> {
        match left {
            None => Ok(!self.broken()?),
            Some(0) => Ok(false),
            Some(n) => {
                *n -= 1;
                Ok(true)
            }
        }
    }

    /// Allocates a vector for the number of elements announced by the sender. The number is untrusted, so it is
    /// capped by how many elements of at least `shortest` bytes the rest of the document can hold.
    fn room<T>(&mut self, elements: Option<u64>, shortest: usize, each: usize) -> Result<Vec<T>, String> {
        let fits = self.rest.len() / shortest;
        let n = elements.map_or(0, |n| usize::try_from(n).map_or(fits, |n| n.min(fits)));
        self.budget.take(n.saturating_mul(each))?;
        Ok(Vec::with_capacity(n))
    }

    fn array(&mut self, mut left: Option<u64>, depth: usize) -> Result<Value, String> {
        let mut items = self.room(left, 1, ITEM)?;
        while self.more(&mut left)? {
            let item = self.item(depth + 1)?;
            self.budget.push(&mut items, item)?;
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, mut left: Option<u64>, depth: usize) -> Result<Value, String> {
        let mut pairs: Vec<(Str, Value)> = self.room(left, 2, PAIR)?;
        while self.more(&mut left)? {
            let key = self.head()?;
            if !matches!(key.major, BYTES | TEXT) {
                return Err(format!(
                    "cbor: cannot unmarshal a map key of major type {} into a string",
                    key.major
                ));
            }
            let key = text(self.string(&key)?)?;
            let item = self.item(depth + 1)?;
            self.budget.push(&mut pairs, (key, item))?;
        }
        let given = pairs.len();
        let map = Map::from_pairs(pairs);
        if map.len() < given {
            return Err("cbor: found duplicate map key".to_owned());
        }
        Ok(Value::Object(map))
    }

    fn tagged(&mut self, tag: u64, depth: usize) -> Result<Value, String> {
        // Expected-conversion tags turn a byte string into text of the given encoding.
        let convert: fn(&[u8]) -> String = match tag {
            21 => |b| URL_SAFE_NO_PAD.encode(b),
            22 => |b| STANDARD.encode(b),
            23 => hex,
            2 | 3 => return Err("cbor: bignums are not supported".to_owned()),
            _ => return self.item(depth + 1),
        };
        let head = self.head()?;
        match head.major {
            BYTES => Ok(Value::String(convert(&self.string(&head)?).into())),
            _ => Err(format!("cbor: tag {tag} on something else than a byte string")),
        }
    }
}

fn text(bytes: Cow<'_, [u8]>) -> Result<Str, String> {
    Str::from_utf8(bytes).map_err(|_| "cbor: invalid UTF-8 string".to_owned())
}

fn simple(head: &Head) -> Result<Value, String> {
    let n = head.n.ok_or("cbor: unexpected \"break\" code")?;
    let number = match head.info {
        20 | 21 => return Ok(Value::Bool(head.info == 21)),
        22 | 23 => return Ok(Value::Null),
        25 => half_value(n as u16),
        26 => f64::from(f32::from_bits(n as u32)),
        27 => f64::from_bits(n),
        _ => return Err(format!("cbor: simple value {n} is not recognized")),
    };
    if number.is_finite() {
        return Ok(Value::Float(number));
    }
    Err("cbor: NaN and infinities are not supported".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use proptest::prelude::*;

    fn shown(bytes: &[u8]) -> String {
        hex(bytes)
    }

    #[test]
    fn strings_encode_as_bytes_and_shorter_keys_sort_first() {
        let value = json!({"b": 1, "aa": "x", "a": [true, null, (-1), 1.5, 300]});
        assert_eq!(
            shown(&to_vec(&value)),
            "d9d9f7a3416185f5f620f93e0019012c4162014261614178"
        );
    }

    #[test]
    fn events_encode_as_one_self_described_item() {
        let bytes = event("ADDED", &json!({}));
        assert_eq!(shown(&bytes), "d9d9f7a24474797065454144444544466f626a656374a0");
        assert_eq!(decode(&bytes).unwrap(), json!({"type": "ADDED", "object": {}}));
    }

    #[test]
    fn floats_use_the_shortest_exact_encoding() {
        for (f, text) in [
            (0.0, "f90000"),
            (-0.0, "f98000"),
            (65504.0, "f97bff"),
            (65536.0, "fa47800000"),
            (2f64.powi(-24), "f90001"),
            (1.5, "f93e00"),
            (100_000.5, "fa47c35040"),
            (0.1, "fb3fb999999999999a"),
        ] {
            let mut out = Vec::new();
            float(&mut out, f);
            assert_eq!(shown(&out), text);
        }
    }

    #[test]
    fn text_indefinite_lengths_and_tags_decode() {
        let bytes = b"\xd9\xd9\xf7\xbf\x61a\x7f\x61x\x61y\xff\x41b\x9f\x01\xff\x41c\xd6\x42hi\xff";
        assert_eq!(decode(bytes).unwrap(), json!({"a": "xy", "b": [1], "c": "aGk="}));
    }

    #[test]
    fn unsupported_cbor_is_rejected() {
        for (bytes, why) in [
            (&b"\xa2\x41a\x01\x41a\x02"[..], "duplicate map key"),
            (b"\xf9\x7e\x00", "NaN"),
            (b"\xc2\x41\x01", "bignums"),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "overflows"),
            (b"\x01\x01", "extraneous"),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", "EOF"),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "EOF"),
            (b"\xa1\x01\x02", "map key"),
            (b"\xff", "break"),
            (b"\x62\xc3\x28", "UTF-8"),
            (b"", "EOF"),
        ] {
            let error = decode(bytes).unwrap_err();
            assert!(error.contains(why), "expected {why:?} in {error:?}");
        }
        assert!(decode(&[0x81; 100_000]).unwrap_err().contains("max nested level"));
    }

    fn trees() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            any::<f64>()
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(Value::Float),
            ".*".prop_map(|s| Value::String(s.into())),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((".{0,12}", inner), 0..6).prop_map(|pairs| {
                    Value::Object(Map::from_pairs(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect()))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_round_trip(value in trees()) {
            prop_assert_eq!(decode(&to_vec(&value)).unwrap(), value);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(value) = decode(&bytes) {
                prop_assert_eq!(decode(&to_vec(&value)).unwrap(), value);
            }
        }
    }
}
