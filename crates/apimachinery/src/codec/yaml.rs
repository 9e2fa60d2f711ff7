//! YAML with the behaviour of `sigs.k8s.io/yaml`, which converts through JSON and resolves scalars by YAML
//! 1.1.
//!
//! Start at [`decode`] and [`to_vec`]. Reading: only the first document counts; `yes`, `on` and `y` are
//! booleans, `0755` is 493, `1_000` is a number, `1e3` is a string (an exponent needs a sign), timestamps and
//! `1:20` are strings; keys become strings; anchors, aliases and `<<` work, with limits on nesting and
//! expansion. Writing: sorted keys, an indent of two, lists at the indent of their key, quotes only where
//! needed.
//!
//! ```
//! use torana_apimachinery::codec::yaml;
//! use torana_apimachinery::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let object = yaml::decode(b"replicas: 3\nenabled: yes\nmode: 0755\n")?;
//! assert_eq!(object, json!({"enabled": true, "mode": 493, "replicas": 3}));
//! assert_eq!(yaml::to_string(&object), "enabled: true\nmode: 493\nreplicas: 3\n");
//!
//! let (_, duplicates) = yaml::decode_with_duplicates(b"a: 1\nb:\n  x: 1\n  x: 2\n")?;
//! assert_eq!(duplicates, [r#"line 4: key "x" already set in map"#]);
//! # Ok(())
//! # }
//! ```

mod builder;
mod complaint;
mod emit;
mod input;
mod places;
mod resolve;
mod scalar;

pub use emit::{to_item, to_string, to_vec};
pub use places::places;

use super::budget::{DecodeBudget, OverBudget};
use super::json;
use crate::interrupt::{checkpoint_now, pause};
use crate::value::Value;
use builder::{Builder, Wide};
use complaint::Nesting;
use input::PausingInput;
use saphyr_parser::{Event, Parser};

/// Levels of lists and maps that a document may have.
pub const MAX_DEPTH: usize = 1_000;

/// Why a text is not a document. Callers prepend upstream's context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text violates the grammar.
    #[error("yaml: {}{reason}", at(*shown))]
    Syntax {
        /// Counted from one.
        line: usize,
        /// The line that upstream's message names; 0 for none.
        shown: usize,
        /// The message, as upstream words it.
        reason: String,
    },
    /// Bytes that are not YAML text.
    #[error("yaml: {0}")]
    Unreadable(&'static str),
    /// The text would be split into too many tokens.
    #[error("yaml: document has {0} indicators, more than {max}", max = MAX_INDICATORS)]
    Indicators(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("yaml: line {0}: exceeded max depth of {max}", max = MAX_DEPTH)]
    TooDeep(usize),
    /// A key that is not a scalar.
    #[error("yaml: line {0}: invalid map key")]
    MapKey(usize),
    /// An alias of an undefined anchor.
    #[error("yaml: unknown anchor referenced")]
    UnknownAnchor,
    /// Too large a part of the document comes from aliases: 99% if it is small, 10% if it is huge.
    #[error("yaml: document contains excessive aliasing")]
    Aliasing,
    /// A value of `<<` that cannot be merged.
    #[error("yaml: map merge requires map or sequence of maps as the value")]
    Merge,
    /// A `!!binary` scalar that is not base64.
    #[error("yaml: line {0}: !!binary value contains invalid base64 data")]
    Binary(usize),
    /// A number that JSON does not have.
    #[error("yaml: line {line}: json: unsupported value: {value}")]
    NotFinite {
        /// Counted from one.
        line: usize,
        /// The number in Go's form.
        value: &'static str,
    },
    /// The document takes too much memory.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

/// About [`DecodeBudget::MAX`] bytes of tokens. Half a megabyte of dense JSON in a block scalar stays below.
const MAX_INDICATORS: usize = 128 * 1024;

/// Decodes the first document; an empty text is null.
///
/// # Errors
/// The text is not YAML, or exceeds a limit.
pub fn decode(text: &[u8]) -> Result<Value, Error> {
    decode_with_duplicates(text).map(|(v, _)| v)
}

/// Decodes the first document and reports duplicate keys, of which the last wins: `line 4: key "x" already
/// set in map`. Memory is limited to [`DecodeBudget::of_body`].
///
/// # Errors
/// The errors of [`decode`].
pub fn decode_with_duplicates(text: &[u8]) -> Result<(Value, Vec<String>), Error> {
    let text = readable(text)?;
    // JSON is valid YAML: use the faster decoder. Only floats without a fraction differ, which become
    // integers here.
    // Only `{`: a JSON scalar or list may mean something else in YAML 1.1, and bodies are objects.
    if text.trim_start().starts_with('{')
        && let Ok((mut v, notes)) = json::decode_with_duplicates(text.as_bytes())
        // Duplicates need the YAML decoder: its message has the line.
        && notes.duplicates.is_empty()
    {
        settle(&mut v);
        return Ok((v, Vec::new()));
    }
    parse(text, Wide::Rounded)
}

/// The document that [`decode`] made `v` of, with the digits of each integer from 2⁶³ to 2⁶⁴ as a string, of which `v` has
/// the nearest float; `None` if there is none.
///
/// ```
/// use torana_apimachinery::codec::yaml;
/// use torana_apimachinery::json;
///
/// # fn main() -> Result<(), yaml::Error> {
/// let text = b"bytes: 9223372036854775809\n";
/// let rounded = yaml::decode(text)?;
/// assert_eq!(yaml::with_digits(text, &rounded), Some(json!({"bytes": "9223372036854775809"})));
/// assert_eq!(yaml::with_digits(b"bytes: 1\n", &json!({"bytes": 1})), None);
/// # Ok(())
/// # }
/// ```
pub fn with_digits(text: &[u8], v: &Value) -> Option<Value> {
    // Nearly all documents have none, and finding that out is far cheaper than to parse again.
    if !has_wide(v) {
        return None;
    }
    let (exact, _) = parse(readable(text).ok()?, Wide::Digits).ok()?;
    Some(exact)
}

fn has_wide(v: &Value) -> bool {
    pause();
    match v {
        // The largest of these integers is rounded to 2^64.
        Value::Float(f) => (9_223_372_036_854_775_808.0..=18_446_744_073_709_551_616.0).contains(f),
        Value::Array(items) => items.iter().any(has_wide),
        Value::Object(map) => map.values().any(has_wide),
        _ => false,
    }
}

fn parse(text: &str, wide: Wide) -> Result<(Value, Vec<String>), Error> {
    // Before the parser sees the text: it buffers tokens without a limit of its own.
    check_tokens(text.as_bytes())?;
    let mut parser = Parser::new(PausingInput::new(text));
    let mut builder = Builder::new(DecodeBudget::of_body(text.len()), wide);
    let mut nesting = Nesting::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|e| {
            let (shown, reason) = complaint::of(&e, &nesting, text);
            let line = e.marker().line();
            Error::Syntax { line, shown, reason }
        })?;
        nesting.follow(&event, span);
        match event {
            // Further documents are ignored, like `sigs.k8s.io/yaml` does.
            Event::StreamEnd | Event::DocumentEnd => break,
            event => builder.event(event, span)?,
        }
    }
    Ok(builder.finish())
}

/// Upstream's library omits the number of the first line.
fn at(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

/// Bytes checked between two checkpoints, which takes some tens of microseconds.
const CHUNK: usize = 64 << 10;

/// Returns the text if it is UTF-8 without control characters, which is what upstream's library accepts; its messages
/// otherwise.
fn readable(bytes: &[u8]) -> Result<&str, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| Error::Unreadable(not_utf8(&bytes[e.valid_up_to()..])))?;
    let is_control = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => false,
        c => c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    let mut rest = text;
    while !rest.is_empty() {
        // A multi-megabyte body takes milliseconds to scan.
        checkpoint_now();
        // Never empty: a chunk is far longer than the longest character.
        let (chunk, after) = rest.split_at(rest.floor_char_boundary(CHUNK));
        if chunk.chars().any(is_control) {
            return Err(Error::Unreadable("control characters are not allowed"));
        }
        rest = after;
    }
    Ok(text)
}

/// The reason why a byte sequence is not UTF-8.
fn not_utf8(bytes: &[u8]) -> &'static str {
    let length = match bytes.first() {
        Some(0xc0..0xe0) => 2,
        Some(0xe0..0xf0) => 3,
        Some(0xf0..0xf8) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    let Some(sequence) = bytes.get(..length) else {
        return "incomplete UTF-8 octet sequence";
    };
    if sequence[1..].iter().any(|b| b & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    // The first two bytes tell whether the code point is out of range.
    match sequence {
        // Surrogates, and numbers beyond the last character.
        [0xed, 0xa0..=0xff, ..] | [0xf4, 0x90..=0xff, ..] | [0xf5..=0xff, ..] => "invalid Unicode character",
        _ => "invalid length of a UTF-8 sequence",
    }
}

/// Limits the number of tokens. The parser buffers the tokens of a whole flow collection (`[…]`) until it
/// knows that it is not a key, before it emits any event: measured at 376 bytes per element of `[0,0,…]`. The
/// indicator characters bound the number of tokens.
fn check_tokens(text: &[u8]) -> Result<(), Error> {
    /// Half tokens per byte: quotes come in pairs.
    const HALVES: [u8; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            table[i] = match i as u8 {
                b',' | b'[' | b']' | b'{' | b'}' | b':' | b'?' | b'&' | b'*' | b'!' => 2,
                b'"' | b'\'' => 1,
                _ => 0,
            };
            i += 1;
        }
        table
    };
    let mut halves = 0;
    // Chunks only serve the checkpoints; the sums are independent of where they are cut.
    for chunk in text.chunks(CHUNK) {
        checkpoint_now();
        halves += chunk
            .iter()
            .map(|b| usize::from(HALVES[usize::from(*b)]))
            .sum::<usize>();
    }
    // Rounded down: an odd quote is a syntax error that the parser reports.
    match halves / 2 {
        ..=MAX_INDICATORS => Ok(()),
        n => Err(Error::Indicators(n)),
    }
}

/// Normalises numbers like the conversion through JSON does: floats that print without a fraction become
/// integers.
fn settle(v: &mut Value) {
    match v {
        // Go decodes the JSON that the conversion printed, in which such a float has no fraction any more.
        Value::Float(f) => *v = number(*f),
        Value::Array(a) => a.iter_mut().for_each(settle),
        Value::Object(m) => m.iter_mut().for_each(|(_, v)| settle(v)),
        _ => {}
    }
}

fn number(f: f64) -> Value {
    // Both bounds are exactly representable; 2^63 itself does not fit an `i64`.
    if f.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&f) {
        Value::Int(f as i64)
    } else {
        Value::Float(f)
    }
}

#[cfg(test)]
mod tests;
