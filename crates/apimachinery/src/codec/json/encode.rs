//! The JSON encoder: compact, with Go's escapes and numbers. Entry points: [`encode`], [`to_vec`], and
//! [`to_vec_pretty`] for indented text.

use super::indent;
use crate::interrupt::pause;
use crate::value::Value;
use std::fmt;

/// Appends the compact encoding of `v`.
pub fn encode(v: &Value, out: &mut Vec<u8>) {
    match v {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(i) => encode_int(*i, out),
        Value::Float(f) => encode_float(*f, out),
        Value::String(s) => encode_str(s, out),
        Value::Array(a) => {
            out.push(b'[');
            for (i, v) in a.iter().enumerate() {
                // One yield per element: a scalar is too short to matter, a list of a million is not.
                pause();
                if i > 0 {
                    out.push(b',');
                }
                encode(v, out);
            }
            out.push(b']');
        }
        Value::Object(m) => {
            out.push(b'{');
            for (i, (k, v)) in m.iter().enumerate() {
                pause();
                if i > 0 {
                    out.push(b',');
                }
                encode_str(k, out);
                out.push(b':');
                encode(v, out);
            }
            out.push(b'}');
        }
    }
}

/// Encodes `v` compactly.
pub fn to_vec(v: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    encode(v, &mut out);
    out
}

/// Encodes `v` compactly as text. The text is often a key that is kept, so it has little spare capacity.
pub fn to_string(v: &Value) -> String {
    let mut out = Vec::with_capacity(32);
    encode(v, &mut out);
    // The encoder only writes UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// Encodes `v` compactly as text, truncated to about `max` bytes with a note that more follows.
pub(crate) fn to_string_within(v: &Value, max: usize) -> String {
    let mut out = Vec::new();
    if encode_within(v, max, &mut out) {
        return String::from_utf8(out).unwrap_or_default();
    }
    // May split a character, which the lossy conversion replaces.
    out.truncate(max);
    let mut text = String::from_utf8_lossy(&out).into_owned();
    text.push_str("... (more bytes)");
    text
}

/// Appends the compact encoding until `out` exceeds `max` bytes; returns false if it does. May overshoot by
/// one scalar or key.
// A separate walk, because a check per scalar would slow `encode` down for every response.
pub(crate) fn encode_within(v: &Value, max: usize, out: &mut Vec<u8>) -> bool {
    match v {
        Value::Array(a) => {
            out.push(b'[');
            for (i, v) in a.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                if !encode_within(v, max, out) {
                    return false;
                }
            }
            out.push(b']');
        }
        Value::Object(m) => {
            out.push(b'{');
            for (i, (k, v)) in m.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                encode_str(k, out);
                out.push(b':');
                if !encode_within(v, max, out) {
                    return false;
                }
            }
            out.push(b'}');
        }
        scalar => encode(scalar, out),
    }
    // Checked after each value, which is what bounds the overshoot.
    out.len() <= max
}

/// Encodes like upstream's `?pretty=true`, with sorted members.
pub fn to_vec_pretty(v: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    indent(&to_vec(v), 0, &mut out);
    out
}

/// Appends an integer in decimal.
pub fn encode_int(i: i64, out: &mut Vec<u8>) {
    // Filled from the end; 2^63 has 19 digits.
    // `unsigned_abs`, because negating `i64::MIN` overflows.
    let mut digits = [0u8; 20];
    let (mut at, mut n) = (digits.len(), i.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    if i < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a float as Go's `encoding/json` does: the shortest form, an exponent below 1e-6 and from 1e21, no
/// `.0`.
pub(crate) fn encode_float(f: f64, out: &mut Vec<u8>) {
    use std::io::Write;
    let abs = f.abs();
    if abs != 0.0 && !(1e-6..1e21).contains(&abs) {
        // Rust writes the shortest digits but never an exponent sign; Go writes the sign and at least two digits.
        let text = format!("{f:e}");
        let (mantissa, exp) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exp.strip_prefix('-') {
            Some(d) => ('-', d),
            None => ('+', exp),
        };
        write!(out, "{mantissa}e{sign}{digits:0>2}").expect("writing to a Vec cannot fail");
        // Go shortens e-09 to e-9, but does not change e+21.
        let n = out.len();
        // Only `e-0x` is shortened, by the rule in `encoding/json`'s `floatEncoder`.
        if n >= 4 && out[n - 4] == b'e' && out[n - 3] == b'-' && out[n - 2] == b'0' {
            out[n - 2] = out[n - 1];
            out.truncate(n - 1);
        }
    } else {
        write!(out, "{f}").expect("writing to a Vec cannot fail");
    }
}

/// Bytes that must be escaped, or that may start a sequence that must be.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut c = 0;
    while c < special.len() {
        // 0xe2 is the first byte of U+2028 and U+2029, which Go escapes because JavaScript once ended lines there.
        special[c] = c < 0x20 || matches!(c as u8, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2);
        c += 1;
    }
    special
};

/// Appends a quoted string with the escapes of Go's encoder.
pub fn encode_str(s: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let b = s.as_bytes();
    let mut start = 0;
    let mut i = 0;
    while i < b.len() {
        let c = b[i];
        // Runs of plain bytes are copied in one piece.
        if !SPECIAL[usize::from(c)] {
            i += 1;
            continue;
        }
        if c == 0xe2 {
            // U+2028 and U+2029 are encoded as e2 80 a8 and e2 80 a9.
            // Indexing is safe: in valid UTF-8, 0xe2 starts a sequence of three bytes.
            if b[i + 1] == 0x80 && (b[i + 2] == 0xa8 || b[i + 2] == 0xa9) {
                out.extend_from_slice(&b[start..i]);
                out.extend_from_slice(if b[i + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                i += 3;
                start = i;
            } else {
                i += 3;
            }
            continue;
        }
        out.extend_from_slice(&b[start..i]);
        match c {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            c => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(c >> 4)],
                HEX[usize::from(c & 15)],
            ]),
        }
        i += 1;
        start = i;
    }
    out.extend_from_slice(&b[start..]);
    out.push(b'"');
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_string(self))
    }
}
