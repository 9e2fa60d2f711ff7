//! JSON with the behaviour of Go's decoder and encoder.
//!
//! Start at [`decode`], [`decode_with_duplicates`] and [`to_vec`]. Integers stay integers; floats print as in Go; `<`,
//! `>`, `&`, U+2028 and U+2029 are escaped; nesting is limited; duplicate keys are reported. Decoding tries the
//! single-pass decoder in `fast` and falls back to serde_json for anything unusual, errors included.

mod fast;
mod indent;
pub mod pieces;
pub mod projection;
mod sizes;

pub(crate) use indent::DEEPEST_INDENT;
pub use indent::indent;

use super::strict_errors::StrictErrors;
use crate::interrupt::{checkpoint, pause};
use crate::value::{Map, Str, Value};
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use sizes::Sizes;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

/// Maximum nesting accepted. Go's `sigs.k8s.io/json` allows 10,000. The tree is processed recursively and real
/// objects nest a few dozen levels, so the limit is chosen to fit every thread's stack (docs/wire/differences.md).
pub const MAX_DEPTH: usize = 1_000;

/// Why bytes are not a JSON document: Go's message for a syntax error, which clients read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Observations made while decoding.
#[derive(Debug, Default)]
pub struct DecodeNotes {
    /// Paths of duplicate keys (`metadata.labels.a`) in source order, as many as [`StrictErrors`] holds.
    pub duplicates: Vec<String>,
}

/// Decodes one document; trailing data other than white space is an error.
///
/// Has no cancellation points: use it for the server's own documents, which may be decoded while a lock is held.
///
/// # Errors
/// The bytes are not one JSON document.
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    decode_as(bytes, Origin::Server).map(|(v, _)| v)
}

/// Decodes one client document and reports duplicate keys, of which the last wins, as in Go. Has cancellation points.
///
/// # Errors
/// The bytes are not one JSON document.
pub fn decode_with_duplicates(bytes: &[u8]) -> Result<(Value, DecodeNotes), Error> {
    decode_as(bytes, Origin::Client)
}

/// The origin of a document, which decides whether decoding may be interrupted.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// A client's request; decoding may be interrupted.
    Client,
    /// The server's own document. It may be decoded while a lock is held or in the course of a write, so it is not
    /// interrupted.
    Server,
}

impl Origin {
    #[inline]
    fn checkpoint(self) {
        match self {
            Self::Client => checkpoint(),
            Self::Server => pause(),
        }
    }
}

fn decode_as(bytes: &[u8], origin: Origin) -> Result<(Value, DecodeNotes), Error> {
    let fast = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| fast::decode(text, origin));
    fast.map_or_else(|| decode_slowly(bytes, origin), |v| Ok((v, DecodeNotes::default())))
}

fn decode_slowly(bytes: &[u8], origin: Origin) -> Result<(Value, DecodeNotes), Error> {
    let text = mended(bytes);
    let bytes = text.as_bytes();
    let mut d = serde_json::Deserializer::from_str(&text);
    // `Seed` enforces MAX_DEPTH; serde_json's own limit of 128 is lower than what upstream accepts.
    d.disable_recursion_limit();
    let cx = Cx {
        origin,
        sizes: RefCell::new(Sizes::of(bytes)),
        length: bytes.len(),
        duplicates: RefCell::default(),
    };
    let v = Seed {
        cx: &cx,
        at: None,
        depth: 0,
    }
    .deserialize(&mut d)
    .map_err(|e| words(bytes, &e))?;
    d.end().map_err(|e| words(bytes, &e))?;
    Ok((
        v,
        DecodeNotes {
            duplicates: cx.duplicates.into_inner().into_texts(),
        },
    ))
}

/// Replaces what Go reads as U+FFFD: each byte that is not UTF-8, and escapes of surrogates without their other half.
fn mended(bytes: &[u8]) -> Cow<'_, str> {
    let text = decoded(bytes);
    match mended_escapes(&text) {
        Some(mended) => Cow::Owned(mended),
        None => text,
    }
}

/// The text with a U+FFFD for each byte that is not UTF-8, as in Go. Rust's own conversion has one for several bytes.
fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out)
}

/// The text with `\ufffd` for each escaped half of a surrogate pair; `None` if there is none.
fn mended_escapes(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        let digits = digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(digits)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut out: Option<String> = None;
    let (mut at, mut kept) = (0, 0);
    while let Some(next) = text[at..].find('\\') {
        let escape = at + next;
        at = match unit(escape) {
            Some(0xd800..=0xdbff) if matches!(unit(escape + 6), Some(0xdc00..=0xdfff)) => escape + 12,
            Some(0xd800..=0xdfff) => {
                let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
                out.push_str(&text[kept..escape]);
                out.push_str("\\ufffd");
                kept = escape + 6;
                kept
            }
            // The escaped character may be a backslash.
            _ => {
                let escaped = text[escape + 1..].chars().next();
                escape + 1 + escaped.map_or(0, char::len_utf8)
            }
        };
    }
    let mut out = out?;
    out.push_str(&text[kept..]);
    Some(out)
}

/// The error with Go's message if it is a syntax error.
fn words(bytes: &[u8], e: &serde_json::Error) -> Error {
    Error(super::go_syntax::explain(bytes).unwrap_or_else(|| e.to_string()))
}

struct Cx {
    origin: Origin,
    sizes: RefCell<Sizes>,
    length: usize,
    duplicates: RefCell<StrictErrors>,
}

impl Cx {
    /// Called when a container opens; returns the estimated number of its members.
    fn open(&self) -> usize {
        self.origin.checkpoint();
        self.sizes.borrow_mut().next(self.length)
    }
}

/// The decoder's position as a path, linked through the call stack so that it costs nothing unless it is printed.
#[derive(Clone, Copy)]
struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

fn path(at: Option<&At<'_>>, key: &str) -> String {
    let mut steps = Vec::new();
    let mut cur = at;
    while let Some(a) = cur {
        steps.push(a.step);
        cur = a.parent;
    }
    let mut out = String::new();
    for s in steps.iter().rev() {
        match s {
            Step::Key(k) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(k);
            }
            Step::Index(i) => out.push_str(&format!("[{i}]")),
        }
    }
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(key);
    out
}

struct Seed<'a> {
    cx: &'a Cx,
    at: Option<&'a At<'a>>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(de::Error::custom("exceeded max depth"));
        }
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }
    fn visit_i64<E>(self, i: i64) -> Result<Value, E> {
        Ok(Value::Int(i))
    }
    // Like in Go's decoder, integers beyond `i64` become floats.
    fn visit_u64<E>(self, i: u64) -> Result<Value, E> {
        Ok(i64::try_from(i).map_or(Value::Float(i as f64), Value::Int))
    }
    fn visit_f64<E>(self, f: f64) -> Result<Value, E> {
        Ok(Value::Float(f))
    }
    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::String(Str::new(s)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::with_capacity(self.cx.open());
        loop {
            self.cx.origin.checkpoint();
            let at = At {
                parent: self.at,
                step: Step::Index(out.len()),
            };
            match seq.next_element_seed(Seed {
                cx: self.cx,
                at: Some(&at),
                depth: self.depth + 1,
            })? {
                Some(v) => out.push(v),
                None => return Ok(Value::Array(out)),
            }
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs: Vec<(Str, Value)> = Vec::with_capacity(self.cx.open());
        let mut sorted = true;
        while let Some(key) = map.next_key_seed(KeySeed)? {
            self.cx.origin.checkpoint();
            if sorted && pairs.last().is_some_and(|(k, _)| *k >= key) {
                sorted = false;
            }
            let at = At {
                parent: self.at,
                step: Step::Key(&key),
            };
            let v = map.next_value_seed(Seed {
                cx: self.cx,
                at: Some(&at),
                depth: self.depth + 1,
            })?;
            pairs.push((key, v));
        }
        // Strictly ascending keys cannot contain duplicates.
        if !sorted {
            let mut seen: Vec<&str> = pairs.iter().map(|(k, _)| k.as_str()).collect();
            seen.sort_unstable();
            let mut last = "";
            for w in seen.windows(2) {
                if w[0] == w[1] && w[0] != last {
                    last = w[0];
                    self.cx.duplicates.borrow_mut().add(|| path(self.at, w[0]));
                }
            }
        }
        Ok(Value::Object(Map::from_pairs(pairs)))
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Str;
    fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<Str, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Str;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }
    fn visit_str<E>(self, s: &str) -> Result<Str, E> {
        Ok(Str::new(s))
    }
}

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

/// Appends the compact encoding until `out` exceeds `max` bytes; returns false if it does. May overshoot by one
/// scalar or key.
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

/// Appends a float as Go's `encoding/json` does: the shortest form, an exponent below 1e-6 and from 1e21, no `.0`.
pub(crate) fn encode_float(f: f64, out: &mut Vec<u8>) {
    use std::io::Write;
    let abs = f.abs();
    if abs != 0.0 && !(1e-6..1e21).contains(&abs) {
        let text = format!("{f:e}");
        let (mantissa, exp) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exp.strip_prefix('-') {
            Some(d) => ('-', d),
            None => ('+', exp),
        };
        write!(out, "{mantissa}e{sign}{digits:0>2}").expect("writing to a Vec cannot fail");
        // Go shortens e-09 to e-9, but does not change e+21.
        let n = out.len();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_unicode_reads_as_in_go() {
        let read = |body: &[u8]| decode(body).map(|v| v.as_str().unwrap_or_default().to_owned());
        for (body, want) in [
            (&br#""a\ud800b""#[..], "a\u{fffd}b"),
            (br#""\udc00\ud800""#, "\u{fffd}\u{fffd}"),
            (br#""\ud83d\u0041""#, "\u{fffd}A"),
            (br#""\ud83d\ude00""#, "\u{1f600}"),
            (br#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (br#""\\ud800""#, "\\ud800"),
            (b"\"\xf0\x9f\x98x\"", "\u{fffd}\u{fffd}\u{fffd}x"),
            (b"\"\xff\\ud800\"", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(read(body).as_deref(), Ok(want), "{}", String::from_utf8_lossy(body));
        }
        for broken in [&br#""\ud80""#[..], br#""\ud80x""#, br#""\u""#, br#""\"#] {
            assert!(decode(broken).is_err(), "{}", String::from_utf8_lossy(broken));
        }
    }

    #[test]
    fn long_flat_lists_give_others_their_turn() {
        struct Turns(std::rc::Rc<std::cell::Cell<usize>>);
        impl crate::interrupt::Limit for Turns {
            fn is_exceeded(&self) -> bool {
                self.pause();
                false
            }
            fn pause(&self) {
                self.0.set(self.0.get() + 1);
            }
        }
        /// How often `work` lets others run.
        fn turns(work: impl FnOnce()) -> usize {
            let count = std::rc::Rc::default();
            crate::interrupt::run(std::rc::Rc::new(Turns(std::rc::Rc::clone(&count))), work).unwrap();
            count.get()
        }
        const ITEMS: usize = 100_000;
        const TURNS: usize = ITEMS / 300;
        let list = format!("[{}1]", "1,".repeat(ITEMS));
        let duplicates = format!("{{\"l\":{list},\"l\":{list}}}");
        let tree = decode(list.as_bytes()).unwrap();
        // A pass that counts members, and the one that decodes them.
        assert!(turns(|| drop(decode(list.as_bytes()))) > 2 * TURNS);
        assert!(turns(|| drop(decode_with_duplicates(duplicates.as_bytes()))) > 6 * TURNS);
        assert!(turns(|| drop(to_vec(&tree))) > TURNS);
    }

    #[test]
    fn numbers_print_like_go() {
        for (f, want) in [
            (1.0, "1"),
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (1.5e-10, "1.5e-10"),
            (0.1, "0.1"),
            (1e20, "100000000000000000000"),
        ] {
            let mut out = Vec::new();
            encode_float(f, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
        for i in [0, 7, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(to_string(&Value::Int(i)), i.to_string());
        }
    }

    #[test]
    fn strings_are_escaped_like_go() {
        let v = Value::from("a<b>&\u{2028}€\"\\\n\u{1}");
        assert_eq!(to_string(&v), r#""a\u003cb\u003e\u0026\u2028€\"\\\n\u0001""#);
        assert_eq!(decode(to_string(&v).as_bytes()), Ok(v));
    }

    #[test]
    fn duplicate_keys_are_reported_and_the_last_wins() {
        let (v, notes) = decode_with_duplicates(br#"{"b":{"x":1,"x":2},"a":[{"k":1,"k":1}]}"#).unwrap();
        assert_eq!(v.at(&["b", "x"]).as_i64(), Some(2));
        assert_eq!(notes.duplicates, ["b.x", "a[0].k"]);
    }

    #[test]
    fn indentation_is_limited() {
        let mut v = Value::from(vec![1i64; 1000]);
        for _ in 0..250 {
            v = Value::Array(vec![v]);
        }
        let text = to_vec_pretty(&v);
        assert!(text.len() < 20_000, "{}", text.len());
        assert_eq!(decode(&text), Ok(v.clone()));
        let text = super::super::yaml::to_vec(&v);
        assert!(text.len() < 20_000, "{}", text.len());
        assert_eq!(super::super::yaml::decode(&text), Ok(v));
    }

    #[test]
    fn depth_is_limited() {
        let deep = "[".repeat(20_000);
        assert!(
            std::thread::Builder::new()
                .stack_size(64 << 20)
                .spawn(move || decode(deep.as_bytes()).is_err())
                .unwrap()
                .join()
                .unwrap()
        );
    }
}
