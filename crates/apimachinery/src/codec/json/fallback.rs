//! The decoder for everything that `fast` leaves: errors, duplicate keys, bytes that are not UTF-8, unusual
//! numbers. It builds the tree through serde_json.

use super::sizes::Sizes;
use super::{DecodeNotes, Error, Origin};
use crate::codec::go_syntax;
use crate::codec::strict_errors::StrictErrors;
use crate::value::{Map, Str, Value};
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

pub(super) fn decode(bytes: &[u8], origin: Origin) -> Result<(Value, DecodeNotes), Error> {
    let text = mended(bytes);
    let mut d = serde_json::Deserializer::from_str(&text);
    // `Seed` enforces MAX_DEPTH; serde_json's own limit of 128 is lower than what upstream accepts.
    d.disable_recursion_limit();
    let cx = Cx {
        origin,
        sizes: RefCell::new(Sizes::of(text.as_bytes())),
        // Trimmed only when the estimate is used: malformed text gives meaningless counts.
        length: text.len(),
        duplicates: RefCell::default(),
    };
    let v = Seed {
        cx: &cx,
        at: None,
        depth: 0,
    }
    .deserialize(&mut d)
    .map_err(|e| words(bytes, &text, &e))?;
    d.end().map_err(|e| words(bytes, &text, &e))?;
    Ok((
        v,
        DecodeNotes {
            duplicates: cx.duplicates.into_inner().into_texts(),
        },
    ))
}

/// Replaces what Go reads as U+FFFD: each byte that is not UTF-8, and escapes of surrogates without their
/// other half.
fn mended(bytes: &[u8]) -> Cow<'_, str> {
    let text = decoded(bytes);
    match mended_escapes(&text) {
        Some(mended) => Cow::Owned(mended),
        None => text,
    }
}

/// The text with a U+FFFD for each byte that is not UTF-8, as in Go. Rust's own conversion has one for
/// several bytes.
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
        // A high half followed by a low half is a valid pair and left to serde_json.
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

/// The error with Go's message if it is a syntax error. `text` is what was mended of the bytes.
fn words(bytes: &[u8], text: &str, e: &serde_json::Error) -> Error {
    // Go names the byte as it was sent. Syntax errors come first: a number that is too large is only the reason if
    // the text is otherwise valid.
    let known = go_syntax::explain(bytes).or_else(|| go_syntax::too_large(text));
    Error(known.unwrap_or_else(|| e.to_string()))
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
        // The estimate is capped by the text's length, so malformed text cannot reserve memory it does not pay for.
        self.sizes.borrow_mut().next(self.length)
    }
}

/// The decoder's position as a path, linked through the call stack so that it costs nothing unless it is
/// printed.
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
    // Built from the innermost step outward; only called for duplicates.
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
        if self.depth > self.cx.origin.max_depth() {
            return Err(de::Error::custom("exceeded max depth"));
        }
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;
    crate::visit_scalars!();

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
            // Equal keys count as unsorted, so that the duplicate check below sees them.
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
            // Sorting borrowed keys finds duplicates in n log n; a scan per key would be quadratic for clients'
            // objects.
            let mut seen: Vec<&str> = pairs.iter().map(|(k, _)| k.as_str()).collect();
            seen.sort_unstable();
            // Reports a key once, however often it is repeated.
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
