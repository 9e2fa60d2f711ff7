//! [`Builder`]: the tree of a document from the parser's events, with its anchors, aliases and merged maps.

use super::resolve::{Plain, resolve};
use super::{Error, MAX_DEPTH, number};
use crate::codec::budget::{DecodeBudget, OverBudget, PAIR, weight};
use crate::codec::strict_errors::StrictErrors;
use crate::value::{Map, Str, Value};
use saphyr_parser::{Event, ScalarStyle, Span, Tag};
use std::collections::{HashMap, HashSet};

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

/// How integers from 2⁶³ to 2⁶⁴ are represented, which the tree has no number for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Wide {
    /// The nearest float.
    Rounded,
    /// A string of their digits.
    Digits,
}

/// Builds the tree from the parser's events.
pub(super) struct Builder {
    stack: Vec<Frame>,
    root: Option<Value>,
    anchors: HashMap<usize, Anchored>,
    duplicates: StrictErrors,
    nodes: usize,
    aliased: usize,
    budget: DecodeBudget,
    wide: Wide,
}

impl Pairs {
    /// Up to this many members a linear scan replaces the hash set.
    const FEW: usize = 16;

    /// Adds a member; returns true if its key is already present.
    fn add(&mut self, key: Str, value: Value, budget: &mut DecodeBudget) -> Result<bool, OverBudget> {
        // A map of a few members is the common case, and a scan needs no second copy of the keys.
        let known = match self.list.len() {
            ..Self::FEW => self.list.iter().any(|(k, _)| *k == key),
            _ => {
                if self.keys.is_empty() {
                    self.keys = self.list.iter().map(|(k, _)| k.clone()).collect();
                }
                // The key is held twice from here on.
                budget.take(PAIR + key.len())?;
                !self.keys.insert(key.clone())
            }
        };
        // Duplicates stay in the list: `Map::from_pairs` keeps the last of equal keys.
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
    pub(super) fn new(budget: DecodeBudget, wide: Wide) -> Self {
        Self {
            stack: Vec::new(),
            root: None,
            anchors: HashMap::new(),
            duplicates: StrictErrors::default(),
            nodes: 0,
            aliased: 0,
            budget,
            wide,
        }
    }

    /// The document, with the duplicate keys.
    pub(super) fn finish(self) -> (Value, Vec<String>) {
        (self.root.unwrap_or_default(), self.duplicates.into_texts())
    }

    pub(super) fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Error> {
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
                // Only a plain `<<` merges; a quoted one is an ordinary key, as in goyaml.
                let is_merge = style == ScalarStyle::Plain && text == "<<" && tag.is_none();
                if is_merge && let Some(Frame::Map { key: key @ None, .. }) = self.stack.last_mut() {
                    *key = Some(Key::Merge);
                    return Ok(());
                }
                // Charged before the copy is made.
                self.budget.string(text.len())?;
                let v = scalar(&text, style, tag.as_deref(), line, self.wide)?;
                self.value(v, anchor, line)
            }
            Event::Alias(id) => {
                let anchored = self.anchors.get(&id).ok_or(Error::UnknownAnchor)?;
                // Expanded nodes count as decoded ones: the limit is a ratio of the two, as in goyaml's `decode.go`.
                self.nodes += anchored.nodes;
                self.aliased += anchored.nodes;
                // Upstream only counts nodes, so a hundred thousand aliases of one long string would pass;
                // here the bytes count, too.
                // Before the clone, which is what takes the memory.
                self.budget.take(anchored.bytes).map_err(|_| Error::Aliasing)?;
                let v = anchored.value.clone();
                self.check_aliases()?;
                // Anchor 0 means none: the copy of an anchored value is not an anchor.
                self.value(v, 0, line)
            }
            _ => Ok(()),
        }
    }

    /// Upstream's alias limit: 99% of the nodes of a small document may come from aliases, but only 10% of a
    /// huge one.
    fn check_aliases(&self) -> Result<(), Error> {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        // Small documents may consist of aliases almost entirely.
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
        // A container in key position.
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
        // The parser numbers anchors from one.
        if anchor != 0 {
            let (nodes, bytes) = (size(&v), weight(&v));
            self.budget.take(ANCHOR + bytes).map_err(|_| Error::Aliasing)?;
            let value = v.clone();
            // A redefined anchor gets a new number from the parser, so entries are never replaced while in use.
            self.anchors.insert(anchor, Anchored { value, nodes, bytes });
        }
        match self.stack.last_mut() {
            None => self.root = Some(v),
            Some(Frame::List { items, .. }) => self.budget.push(items, v)?,
            Some(Frame::Map { pairs, key, .. }) => match key.take() {
                // The first value in a map is its key; the next one completes the pair.
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

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize, wide: Wide) -> Result<Value, Error> {
    let core = tag.filter(|t| t.is_yaml_core_schema()).map(|t| t.suffix.as_str());
    match core {
        Some("str") => return Ok(Value::from(text)),
        Some("binary") => {
            use base64::Engine;
            // Binary scalars are usually folded over several lines.
            let clean: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(clean)
                .map_err(|_| Error::Binary(line))?;
            // Go strings may hold any bytes, but the conversion through JSON replaces those that are not UTF-8.
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
        Plain::Wide(n) if wide == Wide::Digits => Value::from(n.to_string()),
        Plain::Wide(n) => Value::Float(n as f64),
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
