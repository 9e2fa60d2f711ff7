//! JSON with the behaviour of Go's decoder and encoder.
//!
//! Start at [`decode`], [`decode_with_duplicates`] and [`to_vec`]. Integers stay integers; floats print as in
//! Go; `<`, `>`, `&`, U+2028 and U+2029 are escaped; nesting is limited; duplicate keys are reported.
//! Decoding tries the single-pass decoder in `fast` and falls back to `fallback` for anything unusual, errors
//! included. `encode` is the encoder.
//!
//! ```
//! use torana_apimachinery::codec::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let object = json::decode(br#"{"b": 1.0, "a": "<x>"}"#)?;
//! assert_eq!(json::to_string(&object), r#"{"a":"\u003cx\u003e","b":1}"#);
//!
//! // For documents of clients, duplicate keys are reported.
//! let (object, notes) = json::decode_with_duplicates(br#"{"labels": {"app": "a", "app": "b"}}"#)?;
//! assert_eq!(notes.duplicates, ["labels.app"]);
//! assert_eq!(object.str_at(&["labels", "app"]), "b");
//! # Ok(())
//! # }
//! ```

mod encode;
mod fallback;
mod fast;
mod indent;
pub mod pieces;
pub mod projection;
mod scalars;
mod sizes;
pub mod text;

pub use encode::{encode, encode_int, encode_str, to_string, to_vec, to_vec_pretty};
pub(crate) use encode::{encode_within, to_string_within};
pub(crate) use indent::DEEPEST_INDENT;
pub use indent::indent;

use crate::codec::go_syntax;
use crate::interrupt::{checkpoint, pause};
use crate::value::Value;

/// Maximum nesting accepted. Go's `sigs.k8s.io/json` allows 10,000. The tree is processed recursively and
/// real objects nest a few dozen levels, so the limit is chosen to fit every thread's stack
/// (docs/wire/differences.md).
pub const MAX_DEPTH: usize = 1_000;

/// Maximum nesting of the server's own documents: a client's object with what the server adds, such as managed
/// fields, which mirror the object some levels deeper.
pub(crate) const MAX_OWN_DEPTH: usize = MAX_DEPTH + 200;

/// Why bytes are not a JSON document: Go's message for a syntax error, which clients read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Observations made while decoding.
#[derive(Debug, Default)]
pub struct DecodeNotes {
    /// Paths of duplicate keys (`metadata.labels.a`) in source order, as many as `StrictErrors` holds.
    pub duplicates: Vec<String>,
}

/// Decodes one document; trailing data other than white space is an error.
///
/// Has no cancellation points: use it for the server's own documents, which may be decoded while a lock is
/// held.
///
/// # Errors
/// The bytes are not one JSON document.
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    decode_as(bytes, Origin::Server).map(|(v, _)| v)
}

/// Decodes one client document and reports duplicate keys, of which the last wins, as in Go. Has cancellation
/// points.
///
/// # Errors
/// The bytes are not one JSON document.
pub fn decode_with_duplicates(bytes: &[u8]) -> Result<(Value, DecodeNotes), Error> {
    decode_as(bytes, Origin::Client)
}

/// The document with the largest double in place of numbers that no double can represent, if there are any.
/// Go skips members that a type does not declare, whatever their numbers are.
///
/// # Errors
/// Nothing was replaced, or the bytes are not a document for another reason.
pub fn decode_with_huge_numbers(bytes: &[u8]) -> Result<(Value, DecodeNotes), Error> {
    let nothing = || Error("no number is too large".into());
    // Numbers are ASCII, but strings around them need not be UTF-8; such documents keep the first error.
    let text = std::str::from_utf8(bytes).map_err(|_| nothing())?;
    // A document without such numbers failed for another reason, so replacing would not help.
    go_syntax::too_large(text).ok_or_else(nothing)?;
    decode_as(go_syntax::representable(text).as_bytes(), Origin::Client)
}

/// Whether numbers that [`decode_with_huge_numbers`] replaced are left in a tree.
pub fn has_huge_numbers(v: &Value) -> bool {
    pause();
    match v {
        // A false positive needs the exact largest double in a client's document; it only costs the more precise
        // error.
        Value::Float(f) => *f == f64::MAX,
        Value::Array(items) => items.iter().any(has_huge_numbers),
        Value::Object(map) => map.values().any(has_huge_numbers),
        _ => false,
    }
}

/// The origin of a document, which decides whether decoding may be interrupted.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// A client's request; decoding may be interrupted.
    Client,
    /// The server's own document. It may be decoded while a lock is held or in the course of a write, so it
    /// is not interrupted.
    Server,
}

impl Origin {
    #[inline]
    fn max_depth(self) -> usize {
        match self {
            Self::Client => MAX_DEPTH,
            Self::Server => MAX_OWN_DEPTH,
        }
    }

    #[inline]
    fn checkpoint(self) {
        match self {
            Self::Client => checkpoint(),
            Self::Server => pause(),
        }
    }
}

fn decode_as(bytes: &[u8], origin: Origin) -> Result<(Value, DecodeNotes), Error> {
    // Validated once for the whole text; the reader then slices without further checks.
    let fast = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| fast::decode(text, origin));
    // On failure everything is decoded again: errors and oddities are rare, and the fast path stays free of
    // bookkeeping.
    fast.map_or_else(|| fallback::decode(bytes, origin), |v| Ok((v, DecodeNotes::default())))
}

#[cfg(test)]
mod tests {
    use super::encode::encode_float;
    use super::*;

    #[test]
    fn invalid_unicode_reads_as_in_go() {
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
    fn errors_name_the_byte_that_was_sent() {
        for (body, shown) in [
            (
                &b"{\xff\"a\":1}"[..],
                "'\u{ff}' looking for beginning of object key string",
            ),
            (b"[1\xe2\x82]", "'\u{e2}' after array element"),
            (b"\"\xff\\ud800\"\x80", "'\\u0080' after top-level value"),
        ] {
            let error = decode(body).expect_err("not JSON").to_string();
            assert_eq!(error, format!("invalid character {shown}"));
        }
    }

    #[test]
    fn long_flat_lists_pause_while_decoding() {
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
        /// How often `work` pauses for other threads.
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
    fn numbers_without_a_double_are_replaced_on_request() {
        let (v, _) = decode_with_huge_numbers(br#"{"a":[1e999],"b":"1e999"}"#).unwrap();
        assert_eq!(v, crate::json!({"a": [f64::MAX], "b": "1e999"}));
        assert!(has_huge_numbers(&v) && !has_huge_numbers(v.get("b")));
        for none in [&br#"{"a":1e9}"#[..], br#"{"a":1e999"#] {
            assert!(decode_with_huge_numbers(none).is_err());
        }
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
