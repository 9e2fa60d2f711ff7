//! `enum`: the values that are allowed, found by their hash, and the text that names them in errors. Both
//! depend on the schema alone, which may have a megabyte of them, and so take no time for each value.

use super::limits::size;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::Quoted;
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

/// Up to this many values are compared one by one.
const FEW: usize = 8;
/// Maximum bytes of the text: that of an error's detail.
const MAX_TEXT: usize = 32 * 1024;
/// Bytes of a value that are hashed or compared in the time of a step.
const BYTES_PER_STEP: u64 = 128;

/// The allowed values of a schema, in its order.
#[derive(Debug)]
pub(super) struct Enumeration {
    values: Box<[Value]>,
    /// The hashes of the values, sorted, and where the values are; empty for few values.
    by_hash: Box<[(u64, usize)]>,
    hasher: RandomState,
    /// True if any value is a list or an object.
    has_trees: bool,
    bytes: usize,
    /// Made for the first error.
    text: OnceLock<Box<str>>,
}

impl Enumeration {
    /// The values of a schema, if it has any.
    pub(super) fn of(schema: &Value) -> Option<Box<Self>> {
        let values: Box<[Value]> = schema.get("enum").items().into();
        if values.is_empty() {
            return None;
        }
        // Randomly keyed: the values are the client's, and chosen collisions would make lookups linear.
        let hasher = RandomState::new();
        let mut by_hash = Vec::new();
        // Building the table costs more than a few comparisons save.
        if values.len() > FEW {
            by_hash.extend(values.iter().enumerate().map(|(i, v)| {
                checkpoint();
                (hasher.hash_one(v), i)
            }));
            by_hash.sort_unstable();
        }
        Some(Box::new(Self {
            bytes: values.iter().map(size).sum(),
            by_hash: by_hash.into(),
            text: OnceLock::new(),
            hasher,
            has_trees: values.iter().any(is_tree),
            values,
        }))
    }

    pub(super) fn values(&self) -> &[Value] {
        &self.values
    }

    /// About the memory of the values in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The steps of validation that [`allows`](Self::allows) takes.
    pub(super) fn steps(&self, v: &Value) -> u64 {
        let bytes = match v {
            // A longer string is rejected by its length alone.
            Value::String(s) => s.len().min(self.bytes),
            Value::Array(_) | Value::Object(_) if self.has_trees => size(v),
            _ => 0,
        };
        let times = if self.by_hash.is_empty() { self.values.len() } else { 1 };
        (bytes as u64 / BYTES_PER_STEP).saturating_mul(times as u64)
    }

    /// True if `v` is one of the values, or becomes one by a conversion between Go's types: of numbers, and of
    /// an integer to the character with that number.
    pub(super) fn allows(&self, v: &Value) -> bool {
        match v {
            Value::Null => false,
            Value::Array(_) | Value::Object(_) if !self.has_trees => false,
            Value::String(s) if s.len() > self.bytes => false,
            Value::Int(i) => {
                // Go's conversion of an integer to a string gives the character, which upstream's reflection-based
                // comparison allows.
                let c = u32::try_from(*i).ok().and_then(char::from_u32);
                let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
                // Three lookups at most, each in constant time.
                self.has(v)
                    || self.has(&Value::Float(*i as f64))
                    || self.has(&Value::from(c.encode_utf8(&mut [0; 4]) as &str))
            }
            Value::Float(f) => self.has(v) || self.has(&Value::Int(*f as i64)),
            _ => self.has(v),
        }
    }

    fn has(&self, v: &Value) -> bool {
        if self.by_hash.is_empty() {
            return self.values.contains(v);
        }
        let hash = self.hasher.hash_one(v);
        let first = self.by_hash.partition_point(|(h, _)| *h < hash);
        let mut same = self.by_hash[first..].iter().take_while(|(h, _)| *h == hash);
        // Verified by comparison: equal hashes do not imply equal values.
        same.any(|(_, i)| self.values[*i] == *v)
    }

    /// The detail of an error, which names the values, as far as they fit.
    pub(super) fn text(&self) -> &str {
        // Not `get_or_init`: writing may be interrupted, and nobody waits for another's.
        if self.text.get().is_none() {
            let _ = self.text.set(self.write());
        }
        self.text.get().map_or("", |text| text)
    }

    fn write(&self) -> Box<str> {
        let mut out = Bounded::default();
        for (i, value) in self.values.iter().enumerate() {
            checkpoint();
            let before = if i == 0 { "supported values: " } else { ", " };
            // Writing to a `Bounded` does not fail.
            let _ = match value.as_str() {
                Some(text) => write!(out, "{before}{}", Quoted(text)),
                None => write!(out, "{before}{}", Quoted(&json::to_string(value))),
            };
        }
        out.finish()
    }
}

fn is_tree(v: &Value) -> bool {
    matches!(v, Value::Array(_) | Value::Object(_))
}

/// A text that is truncated while it is written, as `field::cut` truncates a whole one.
#[derive(Default)]
struct Bounded {
    kept: String,
    total: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.total += s.len();
        // Only the first bytes are kept, but all are counted for the note at the end.
        if self.kept.len() <= MAX_TEXT {
            // A character more than fits, so that a truncated text is known as one.
            let room = MAX_TEXT + char::MAX_LEN_UTF8 - self.kept.len();
            self.kept.push_str(&s[..s.floor_char_boundary(room)]);
        }
        Ok(())
    }
}

impl Bounded {
    fn finish(mut self) -> Box<str> {
        if self.total > MAX_TEXT {
            self.kept.truncate(self.kept.floor_char_boundary(MAX_TEXT));
            let missing = self.total - self.kept.len();
            let _ = write!(self.kept, "... ({missing} more bytes)");
        }
        self.kept.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::cut;
    use crate::json;

    fn of(values: Vec<Value>) -> Box<Enumeration> {
        let mut schema = Value::object();
        schema.set(&["enum"], values);
        Enumeration::of(&schema).unwrap()
    }

    /// The rule as upstream applies it to each value.
    fn is_allowed(v: &Value, e: &Value) -> bool {
        match (v, e) {
            (Value::Null, _) => false,
            (Value::Int(i), Value::Float(f)) => *i as f64 == *f,
            (Value::Float(f), Value::Int(i)) => *f as i64 == *i,
            (Value::Int(i), Value::String(s)) => {
                let c = u32::try_from(*i).ok().and_then(char::from_u32);
                s.chars().eq([c.unwrap_or(char::REPLACEMENT_CHARACTER)])
            }
            _ => v == e,
        }
    }

    #[test]
    fn hashed_enums_accept_the_same_values_as_a_linear_scan() {
        let values = [
            json!(1),
            json!(0),
            json!(65),
            json!(-3),
            json!(1.5),
            json!(2.0),
            json!(-0.0),
            json!("A"),
            json!("\u{fffd}"),
            json!(""),
            json!(null),
            json!(true),
            json!([1]),
            json!({"a": [1]}),
            json!([1.0]),
            json!(97),
            json!("a"),
        ];
        let many = of(values.iter().cycle().take(3 * FEW).cloned().collect());
        assert!(!many.by_hash.is_empty());
        for v in &values {
            assert_eq!(many.allows(v), values.iter().any(|e| is_allowed(v, e)), "{v:?}");
            for e in &values {
                assert_eq!(of(vec![e.clone()]).allows(v), is_allowed(v, e), "{v:?} {e:?}");
            }
        }
    }

    #[test]
    fn the_text_is_truncated_like_a_detail_and_built_once() {
        for (text, times) in [("a", 3), ("é\"", 3), ("é\u{1}", 20_000), ("x", MAX_TEXT / 5)] {
            let enumeration = of(vec![text.into(); times]);
            let quoted = crate::apimachinery::field::quote(text);
            let whole = format!("supported values: {}", vec![quoted; times].join(", "));
            assert_eq!(enumeration.text(), cut(whole, MAX_TEXT));
            assert_eq!(enumeration.text().as_ptr(), enumeration.text().as_ptr());
        }
    }

    #[test]
    fn steps_grow_with_the_size_of_the_values() {
        let long: Value = "x".repeat(1 << 20).into();
        let tree = Value::from(vec![0i64; 10_000]);
        let scalars = of(vec!["a".into(), "b".into()]);
        assert_eq!(scalars.steps(&tree), 0);
        assert!(scalars.steps(&long) < 4, "it is longer than any value");
        let trees = of(vec![tree.clone(); 4]);
        assert!(trees.steps(&tree) >= 4 * 10_000 * 64 / BYTES_PER_STEP);
        assert!(
            of(vec![tree.clone(); 100]).steps(&tree) < 10_000,
            "one hash and one comparison"
        );
    }
}
