//! A single-pass decoder for the common subset of JSON: no duplicate keys within an object, no surrogate pair
//! escapes.
//!
//! [`decode`] returns `None` for anything else, including malformed text. The caller then starts over with
//! the serde_json decoder, which handles the rest and produces the error messages.

use super::Origin;
use super::projection::{splat, zero_bytes};
use super::sizes::Sizes;
use crate::value::{Map, Str, Value, sort_pairs};

/// Decodes a text; `None` if it is outside the subset or malformed.
pub(super) fn decode(text: &str, origin: Origin) -> Option<Value> {
    let mut reader = Reader {
        text,
        at: 0,
        sizes: Sizes::of(text.as_bytes()),
        origin,
    };
    let value = reader.value(0)?;
    reader.space();
    // Trailing data falls through to the general decoder, which words the error.
    (reader.at == text.len()).then_some(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    sizes: Sizes,
    origin: Origin,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips white space and returns the next byte without consuming it.
    fn token(&mut self) -> Option<u8> {
        let b = self.peek()?;
        // Most tokens follow without white space in compact text, which is what clients send.
        if b > b' ' {
            return Some(b);
        }
        self.space();
        self.peek()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        match self.token()? {
            b'"' => self.string().map(Value::String),
            b'{' => self.object(depth).map(Value::Object),
            b'[' => self.array(depth).map(Value::Array),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        // May pass the end of the text if the word was not there; the caller then gives up, so the offset is not used
        // again.
        self.at += word.len();
        found.then_some(value)
    }

    fn number(&mut self) -> Option<Value> {
        /// 18 digits always fit an `i64`.
        const DIGITS: usize = 18;
        let part = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let rest = &self.text[self.at..];
        let len = rest.bytes().position(|b| !part(&b)).unwrap_or(rest.len());
        let text = &rest[..len];
        self.at += len;
        let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
        // `-0` is left out: it is a float in the tree, and `0` with leading digits is malformed.
        let plain = match digits {
            [b'0'] => digits.len() == text.len(),
            [b'1'..=b'9', rest @ ..] => rest.len() < DIGITS && rest.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        // Fractions, exponents, long and malformed numbers.
        if !plain {
            return super::fallback::decode(text.as_bytes(), self.origin)
                .ok()
                .map(|(v, _)| v);
        }
        let n = digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
        Some(Value::Int(if digits.len() == text.len() { n } else { -n }))
    }

    fn object(&mut self, depth: usize) -> Option<Map> {
        // `>=`, because the value inside is one level deeper; at the limit the general decoder gives the error.
        if depth >= self.origin.max_depth() {
            return None;
        }
        self.at += 1;
        let mut pairs: Vec<(Str, Value)> = Vec::with_capacity(self.open());
        let mut sorted = true;
        if self.token()? == b'}' {
            self.at += 1;
            return Some(Map::new());
        }
        loop {
            self.origin.checkpoint();
            if self.token()? != b'"' {
                return None;
            }
            let key = self.string()?;
            if self.token()? != b':' {
                return None;
            }
            self.at += 1;
            // Sortedness is tracked while reading: our own encoding and most clients' are sorted, and then no sort is
            // needed.
            sorted = sorted && pairs.last().is_none_or(|(last, _)| *last < key);
            let value = self.value(depth + 1)?;
            pairs.push((key, value));
            let next = self.token()?;
            self.at += 1;
            match next {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        if !sorted {
            sort_pairs(&mut pairs);
            // Duplicate keys: the general decoder reports them.
            if pairs.windows(2).any(|w| w[0].0 == w[1].0) {
                return None;
            }
        }
        Some(Map::from_pairs(pairs))
    }

    /// Called when a container opens; returns the number of its members if known, else 0.
    fn open(&mut self) -> usize {
        self.origin.checkpoint();
        self.sizes.next(self.text.len() - self.at)
    }

    fn array(&mut self, depth: usize) -> Option<Vec<Value>> {
        if depth >= self.origin.max_depth() {
            return None;
        }
        self.at += 1;
        let mut items = Vec::with_capacity(self.open());
        if self.token()? == b']' {
            self.at += 1;
            return Some(items);
        }
        loop {
            self.origin.checkpoint();
            items.push(self.value(depth + 1)?);
            let next = self.token()?;
            self.at += 1;
            match next {
                b',' => {}
                b']' => return Some(items),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<Str> {
        let from = self.at + 1;
        let mut end = self.plain_end(from);
        // The usual string has no escapes and is copied once, without an intermediate `String`.
        if *self.text.as_bytes().get(end)? == b'"' {
            self.at = end + 1;
            return Some(Str::new(self.text.get(from..end)?));
        }
        // Room for escapes that follow; the text seldom shrinks by more than the guess.
        let mut out = String::with_capacity(2 * (end - from) + 16);
        let mut start = from;
        loop {
            out.push_str(self.text.get(start..end)?);
            let mut escape = 2;
            match *self.text.as_bytes().get(end)? {
                b'"' => break,
                b'\\' => out.push(match *self.text.as_bytes().get(end + 1)? {
                    b'n' => '\n',
                    b't' => '\t',
                    b'r' => '\r',
                    b'b' => '\u{8}',
                    b'f' => '\u{c}',
                    b'u' => {
                        escape = 6;
                        let digits = self.text.get(end + 2..end + 6)?;
                        // `from_str_radix` would accept a leading `+`.
                        let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
                        // Surrogate halves fail here; pairs are rare enough to leave them to the general
                        // decoder.
                        char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| hex)?)?
                    }
                    c @ (b'"' | b'\\' | b'/') => char::from(c),
                    _ => return None,
                }),
                _ => return None,
            }
            start = end + escape;
            end = self.plain_end(start);
        }
        self.at = end + 1;
        Some(Str::from(out))
    }

    /// Returns the offset of the next quote, backslash or control character, or the end of the text. Scans
    /// eight bytes at a time.
    fn plain_end(&self, mut at: usize) -> usize {
        let bytes = self.text.as_bytes();
        while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*word);
            // The lowest set bit is exact even though higher ones may be false positives of `zero_bytes`.
            // Control characters are below 0x20: their upper three bits are zero.
            let control = zero_bytes(word & splat(0xe0));
            let found = zero_bytes(word ^ splat(b'"')) | zero_bytes(word ^ splat(b'\\')) | control;
            if found != 0 {
                return at + found.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        while bytes.get(at).is_some_and(|b| !matches!(b, b'"' | b'\\' | 0..0x20)) {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json;
    use proptest::prelude::*;

    #[test]
    fn common_json_decodes_and_the_rest_is_declined() {
        let text =
            " {\"a\" : [1, -20,0,true ,false,null,\"x\\n\\\"\u{e9}\", {}, [ ] ]\n,\"b\":{\"c\":\"a longer text\"}}\r\n";
        let v = decode(text, Origin::Client).expect("plain");
        assert_eq!(
            json::to_string(&v),
            r#"{"a":[1,-20,0,true,false,null,"x\n\"é",{},[]],"b":{"c":"a longer text"}}"#
        );
        for odd in [
            "",
            "{",
            "{\"a\":1,}",
            "[1,]",
            "01",
            "1.",
            "+1",
            "\"\\ud800\"",
            "\"\\u+123\"",
            "-",
            "\"a\nb\"",
            "nul",
            "{\"a\":1,\"a\":2}",
            "{} x",
            "{a:1}",
            "[1 2]",
            "truefalse",
            "\"abc",
            "1x",
            "\u{feff}1",
        ] {
            assert_eq!(decode(odd, Origin::Client), None, "{odd}");
        }
        assert_eq!(decode(&("[".repeat(5000) + &"]".repeat(5000)), Origin::Client), None);
    }

    proptest! {
        #[test]
        fn accepted_texts_decode_like_the_general_decoder(text in "[\\[\\]{}:,\" \\\\ntrufalse0-9.eE+\\-\n\u{1}\u{e9}]{0,40}") {
            if let Some(v) = decode(&text, Origin::Client) {
                let (slow, notes) = json::fallback::decode(text.as_bytes(), Origin::Client).unwrap();
                prop_assert_eq!(&v, &slow);
                prop_assert!(notes.duplicates.is_empty());
            }
        }
    }
}
