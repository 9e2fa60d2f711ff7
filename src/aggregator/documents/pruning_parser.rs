//! Parser that builds only the known members of a JSON document and skips the rest while reading, so that the
//! memory of the tree is bounded by what we use. Entry point: [`parse`].

use super::Rejected;
use super::limits::MAX_LEVELS;
use crate::apimachinery::value::{Map, Str, Value};
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;

/// The known structure of a value. A list is matched element by element with the same shape; scalars and
/// `null` are accepted anywhere.
pub(crate) enum Shape {
    /// A scalar. Lists and objects become `null`.
    Scalar,
    /// Any value, kept whole.
    Any,
    /// An object with arbitrary keys: the shape of its values, the limit on their number, and their name in
    /// errors.
    Map(&'static Shape, usize, &'static str),
    /// An object with these members; others are skipped.
    Fields(&'static [(&'static str, &'static Shape)]),
    /// Like `Fields`, plus any member whose name begins with `x-`.
    Extensible(&'static [(&'static str, &'static Shape)]),
}

impl Shape {
    fn member(&self, key: &str) -> Option<&'static Shape> {
        let known = |fields: &[(&'static str, &'static Shape)]| {
            let found = fields.iter().find(|(name, _)| *name == key);
            found.map(|(_, shape)| *shape)
        };
        match self {
            Self::Scalar => None,
            Self::Any => Some(&Self::Any),
            Self::Map(of, ..) => Some(of),
            Self::Fields(fields) => known(fields),
            // Before the fields: extensions may hold anything.
            Self::Extensible(_) if key.starts_with("x-") => Some(&Self::Any),
            Self::Extensible(fields) => known(fields),
        }
    }
}

/// Parses the members of a document that `shape` contains, up to `most_values` values.
///
/// # Errors
/// The document is not JSON, or has too many values, members or levels.
pub(super) fn parse(bytes: &[u8], shape: &'static Shape, most_values: usize) -> Result<Value, Rejected> {
    // Go replaces invalid UTF-8. Valid text is not copied.
    let text = String::from_utf8_lossy(bytes);
    let mut d = serde_json::Deserializer::from_str(&text);
    // serde_json's limit of 128 is below `MAX_LEVELS`, which bounds the recursion here; skipping does not
    // recurse.
    d.disable_recursion_limit();
    let refusal = Cell::new(None);
    let seed = Seed {
        shape,
        depth: 0,
        left: &Cell::new(most_values),
        most_values,
        refusal: &refusal,
    };
    let parsed = seed.deserialize(&mut d).and_then(|value| d.end().map(|()| value));
    parsed.map_err(|e| refusal.take().unwrap_or(Rejected::Json(e)))
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    shape: &'static Shape,
    depth: usize,
    left: &'a Cell<usize>,
    most_values: usize,
    refusal: &'a Cell<Option<Rejected>>,
}

impl Seed<'_> {
    fn within(self, shape: &'static Shape) -> Self {
        Self {
            shape,
            depth: self.depth + 1,
            ..self
        }
    }

    /// Stores our own message, without the position that serde_json would append.
    fn refuse<E: de::Error>(self, why: Rejected) -> E {
        self.refusal.set(Some(why));
        E::custom("refused")
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        if self.depth > MAX_LEVELS {
            return Err(self.refuse(Rejected::TooDeep));
        }
        // Counted before it is built, so that the limit bounds memory and not only the result.
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(self.refuse(Rejected::TooMany {
                most: self.most_values,
                what: "values",
            }));
        };
        self.left.set(left);
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;
    crate::apimachinery::visit_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        if matches!(self.shape, Shape::Scalar) {
            // Skipped without being built.
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut all = Vec::new();
        while let Some(one) = seq.next_element_seed(self.within(self.shape))? {
            all.push(one);
        }
        Ok(Value::Array(all))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs: Vec<(Str, Value)> = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            let Some(shape) = self.shape.member(&key) else {
                // Only its syntax is checked; it takes no memory.
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            // Before the value is read, so that the limit bounds memory.
            if let Shape::Map(_, most, what) = self.shape
                && pairs.len() == *most
            {
                return Err(self.refuse(Rejected::TooMany { most: *most, what }));
            }
            let value = map.next_value_seed(self.within(shape))?;
            pairs.push((key, value));
        }
        match self.shape {
            Shape::Scalar => Ok(Value::Null),
            _ => Ok(Value::Object(Map::from_pairs(pairs))),
        }
    }
}

/// A member's name; short ones need no allocation.
struct Key(Str);

impl<'de> de::Deserialize<'de> for Key {
    fn deserialize<D: de::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d).map(|key| Self(Str::new(&key)))
    }
}
