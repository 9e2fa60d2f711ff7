//! YAML with the behaviour of `sigs.k8s.io/yaml`, which converts through JSON and resolves scalars by YAML 1.1.
//!
//! Start at [`decode`] and [`to_vec`]. Reading: only the first document counts; `yes`, `on` and `y` are booleans,
//! `0755` is 493, `1_000` is a number, `1e3` is a string (an exponent needs a sign), timestamps and `1:20` are
//! strings; keys become strings; anchors, aliases and `<<` work, with limits on nesting and expansion. Writing:
//! sorted keys, an indent of two, lists at the indent of their key, quotes only where needed.

mod emit;
mod input;
mod places;
mod resolve;

pub use emit::{to_string, to_vec};
pub use places::places;

use super::budget::{DecodeBudget, OverBudget, PAIR, weight};
use super::json;
use super::strict_errors::StrictErrors;
use crate::interrupt::checkpoint_now;
use crate::value::{Map, Str, Value};
use input::PausingInput;
use resolve::{Plain, resolve};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::collections::{HashMap, HashSet};

/// Maximum nesting accepted.
pub const MAX_DEPTH: usize = 1_000;

/// Why a text is not a document. Callers prepend upstream's context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text violates the grammar.
    #[error("yaml: {}{reason}", at(*line))]
    Syntax {
        /// Counted from one.
        line: usize,
        /// The parser's message.
        reason: String,
    },
    /// Bytes that are no text of YAML.
    #[error("yaml: {0}")]
    Unreadable(&'static str),
    /// The text would be split into too many tokens.
    #[error("yaml: document has {0} indicators, more than {max}", max = MAX_INDICATORS)]
    Indicators(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("yaml: line {0}: exceeded max depth of {max}", max = MAX_DEPTH)]
    TooDeep(usize),
    /// A key that is no scalar.
    #[error("yaml: line {0}: invalid map key")]
    MapKey(usize),
    /// An alias of an anchor that is not there.
    #[error("yaml: unknown anchor referenced")]
    UnknownAnchor,
    /// Aliases expand excessively.
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

/// Decodes the first document and reports duplicate keys, of which the last wins: `line 4: key "x" already set in
/// map`. Memory is limited to [`DecodeBudget::of_body`].
///
/// # Errors
/// The errors of [`decode`].
pub fn decode_with_duplicates(text: &[u8]) -> Result<(Value, Vec<String>), Error> {
    let text = readable(text)?;
    // JSON is valid YAML: use the faster decoder. Only floats without a fraction differ, which become integers here.
    if text.trim_start().starts_with('{')
        && let Ok((mut v, notes)) = json::decode_with_duplicates(text.as_bytes())
        && notes.duplicates.is_empty()
    {
        settle(&mut v);
        return Ok((v, Vec::new()));
    }
    check_tokens(text.as_bytes())?;
    let mut parser = Parser::new(PausingInput::new(text));
    let mut build = Builder {
        stack: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        duplicates: StrictErrors::default(),
        nodes: 0,
        aliased: 0,
        budget: DecodeBudget::of_body(text.len()),
    };
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|e| Error::Syntax {
            line: e.marker().line(),
            reason: words(e.info()).to_owned(),
        })?;
        match event {
            Event::StreamEnd | Event::DocumentEnd => break,
            event => build.event(event, span)?,
        }
    }
    Ok((build.root.unwrap_or_default(), build.duplicates.into_texts()))
}

/// Upstream's library does not name the first line.
fn at(line: usize) -> String {
    match line {
        ..=1 => String::new(),
        line => format!("line {line}: "),
    }
}

/// Bytes checked between two checkpoints, which takes some tens of microseconds.
const CHUNK: usize = 64 << 10;

/// The text, if it is UTF-8 without control characters: what upstream's library reads, in its words.
fn readable(bytes: &[u8]) -> Result<&str, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| Error::Unreadable(not_utf8(&bytes[e.valid_up_to()..])))?;
    let is_control = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => false,
        c => c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'),
    };
    let mut rest = text;
    while !rest.is_empty() {
        checkpoint_now();
        let (chunk, after) = rest.split_at(rest.floor_char_boundary(CHUNK));
        if chunk.chars().any(is_control) {
            return Err(Error::Unreadable("control characters are not allowed"));
        }
        rest = after;
    }
    Ok(text)
}

/// What is wrong with a sequence that is not UTF-8.
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
    match sequence {
        // Surrogates, and numbers beyond the last character.
        [0xed, 0xa0..=0xff, ..] | [0xf4, 0x90..=0xff, ..] | [0xf5..=0xff, ..] => "invalid Unicode character",
        _ => "invalid length of a UTF-8 sequence",
    }
}

/// Limits the number of tokens. The parser buffers the tokens of a whole flow collection (`[…]`) until it knows that
/// it is not a key, before it emits any event: measured at 376 bytes per element of `[0,0,…]`. The indicator
/// characters bound the number of tokens.
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
    for chunk in text.chunks(CHUNK) {
        checkpoint_now();
        halves += chunk
            .iter()
            .map(|b| usize::from(HALVES[usize::from(*b)]))
            .sum::<usize>();
    }
    match halves / 2 {
        ..=MAX_INDICATORS => Ok(()),
        n => Err(Error::Indicators(n)),
    }
}

/// The parser's message, with upstream's text for the most common mistakes.
fn words(info: &str) -> &str {
    let reason = info.strip_prefix("while parsing a quoted scalar, ").unwrap_or(info);
    match reason {
        "did not find expected hexadecimal number" => "did not find expected hexdecimal number",
        reason if reason.contains("while parsing a node") => "did not find expected node content",
        reason => reason,
    }
}

/// Normalises numbers like the conversion through JSON does: floats that print without a fraction become integers.
fn settle(v: &mut Value) {
    match v {
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

/// A container that is still open.
enum Frame {
    List {
        items: Vec<Value>,
        anchor: usize,
    },
    Map {
        pairs: Pairs,
        key: Option<Key>,
        anchor: usize,
    },
}

/// The members of a map that is still open.
#[derive(Default)]
struct Pairs {
    list: Vec<(Str, Value)>,
    /// The keys of `list`; filled once a linear scan becomes too slow.
    keys: HashSet<Str>,
}

enum Key {
    Name(Str),
    Merge,
}

/// The value of an anchor, for its aliases.
struct Anchored {
    value: Value,
    nodes: usize,
    bytes: usize,
}

/// Bytes per entry of the anchor table, which may be half empty.
const ANCHOR: usize = 2 * size_of::<(usize, Anchored)>();

struct Builder {
    stack: Vec<Frame>,
    root: Option<Value>,
    anchors: HashMap<usize, Anchored>,
    duplicates: StrictErrors,
    nodes: usize,
    aliased: usize,
    budget: DecodeBudget,
}

impl Pairs {
    /// Up to this many members a linear scan replaces the hash set.
    const FEW: usize = 16;

    /// Adds a member; returns true if its key is already present.
    fn add(&mut self, key: Str, value: Value, budget: &mut DecodeBudget) -> Result<bool, OverBudget> {
        let known = match self.list.len() {
            ..Self::FEW => self.list.iter().any(|(k, _)| *k == key),
            _ => {
                if self.keys.is_empty() {
                    self.keys = self.list.iter().map(|(k, _)| k.clone()).collect();
                }
                budget.take(PAIR + key.len())?;
                !self.keys.insert(key.clone())
            }
        };
        budget.push(&mut self.list, (key, value))?;
        Ok(known)
    }

    /// Adds the members of a merged map. Existing keys are expected here and not reported.
    fn merge(&mut self, map: Map, budget: &mut DecodeBudget) -> Result<(), OverBudget> {
        for (key, value) in map {
            self.add(key, value, budget)?;
        }
        Ok(())
    }
}

fn size(v: &Value) -> usize {
    match v {
        Value::Array(a) => 1 + a.iter().map(size).sum::<usize>(),
        Value::Object(m) => 1 + m.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Error> {
        let line = span.start.line();
        self.budget.checkpoint();
        self.nodes += 1;
        match event {
            Event::SequenceStart(anchor, _) => self.open(
                Frame::List {
                    items: Vec::new(),
                    anchor,
                },
                line,
            ),
            Event::MappingStart(anchor, _) => self.open(
                Frame::Map {
                    pairs: Pairs::default(),
                    key: None,
                    anchor,
                },
                line,
            ),
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Frame::List { items, anchor }) => self.value(Value::Array(items), anchor, line),
                Some(Frame::Map { pairs, anchor, .. }) => {
                    self.value(Value::Object(Map::from_pairs(pairs.list)), anchor, line)
                }
                None => Ok(()),
            },
            Event::Scalar(text, style, anchor, tag) => {
                let is_merge = style == ScalarStyle::Plain && text == "<<" && tag.is_none();
                if is_merge && let Some(Frame::Map { key: key @ None, .. }) = self.stack.last_mut() {
                    *key = Some(Key::Merge);
                    return Ok(());
                }
                self.budget.string(text.len())?;
                let v = scalar(&text, style, tag.as_deref(), line)?;
                self.value(v, anchor, line)
            }
            Event::Alias(id) => {
                let anchored = self.anchors.get(&id).ok_or(Error::UnknownAnchor)?;
                self.nodes += anchored.nodes;
                self.aliased += anchored.nodes;
                // Upstream only counts nodes, so a hundred thousand aliases of one long string would pass; here the
                // bytes count, too.
                self.budget.take(anchored.bytes).map_err(|_| Error::Aliasing)?;
                let v = anchored.value.clone();
                self.check_aliases()?;
                self.value(v, 0, line)
            }
            _ => Ok(()),
        }
    }

    /// Upstream's alias limit: 99% of the nodes of a small document may come from aliases, but only 10% of a huge one.
    fn check_aliases(&self) -> Result<(), Error> {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        if self.aliased <= 100 || self.nodes <= 1000 {
            return Ok(());
        }
        let n = self.nodes as f64;
        let allowed = 0.99 - 0.89 * ((n - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        if self.aliased as f64 / n > allowed {
            return Err(Error::Aliasing);
        }
        Ok(())
    }

    fn open(&mut self, frame: Frame, line: usize) -> Result<(), Error> {
        if let Some(Frame::Map { key: None, .. }) = self.stack.last() {
            return Err(Error::MapKey(line));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(Error::TooDeep(line));
        }
        self.stack.push(frame);
        Ok(())
    }

    fn value(&mut self, v: Value, anchor: usize, line: usize) -> Result<(), Error> {
        if anchor != 0 {
            let (nodes, bytes) = (size(&v), weight(&v));
            self.budget.take(ANCHOR + bytes).map_err(|_| Error::Aliasing)?;
            let value = v.clone();
            self.anchors.insert(anchor, Anchored { value, nodes, bytes });
        }
        match self.stack.last_mut() {
            None => self.root = Some(v),
            Some(Frame::List { items, .. }) => self.budget.push(items, v)?,
            Some(Frame::Map { pairs, key, .. }) => match key.take() {
                None => *key = Some(Key::Name(key_text(v).ok_or(Error::MapKey(line))?)),
                Some(Key::Merge) => merge(pairs, v, &mut self.budget)?,
                Some(Key::Name(k)) => {
                    let key = k.clone();
                    if pairs.add(k, v, &mut self.budget)? {
                        self.duplicates
                            .add(|| format!("line {line}: key {key:?} already set in map"));
                    }
                }
            },
        }
        Ok(())
    }
}

fn merge(pairs: &mut Pairs, v: Value, budget: &mut DecodeBudget) -> Result<(), Error> {
    match v {
        Value::Object(m) => pairs.merge(m, budget)?,
        Value::Array(a) => {
            // The first of several merged maps takes precedence, so it is added last.
            for v in a.into_iter().rev() {
                match v {
                    Value::Object(m) => pairs.merge(m, budget)?,
                    _ => return Err(Error::Merge),
                }
            }
        }
        _ => return Err(Error::Merge),
    }
    Ok(())
}

fn key_text(v: Value) -> Option<Str> {
    match v {
        Value::String(s) => Some(s),
        Value::Int(i) => Some(Str::from(i.to_string())),
        Value::Bool(b) => Some(Str::const_new(if b { "true" } else { "false" })),
        v @ Value::Float(_) => Some(Str::from(crate::patch::go_print(&v))),
        _ => None,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Result<Value, Error> {
    let core = tag.filter(|t| t.is_yaml_core_schema()).map(|t| t.suffix.as_str());
    match core {
        Some("str") => return Ok(Value::from(text)),
        Some("binary") => {
            use base64::Engine;
            let clean: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(clean)
                .map_err(|_| Error::Binary(line))?;
            return Ok(Value::String(Str::from_utf8_lossy(&bytes)));
        }
        Some("float") => {
            if let Plain::Int(i) = resolve(text) {
                return Ok(Value::Int(i));
            }
        }
        _ => {}
    }
    // A quoted scalar, or one with a custom tag, is a string unless a core tag says otherwise.
    if (style != ScalarStyle::Plain && core.is_none()) || (tag.is_some() && core.is_none()) {
        return Ok(Value::from(text));
    }
    Ok(match resolve(text) {
        Plain::Null => Value::Null,
        Plain::Bool(b) => Value::Bool(b),
        Plain::Int(i) => Value::Int(i),
        Plain::Float(f) if f.is_finite() => number(f),
        Plain::Float(f) => {
            let value = match f {
                f if f.is_nan() => "NaN",
                f if f > 0.0 => "+Inf",
                _ => "-Inf",
            };
            return Err(Error::NotFinite { line, value });
        }
        Plain::String => Value::from(text),
    })
}

#[cfg(test)]
mod tests;
