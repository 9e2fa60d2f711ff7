//! [`PathElement`]: one step of a path into an object, with its `fieldsV1` encoding and its display form in
//! conflicts.

use crate::codec::json;
use crate::field::quote;
use crate::value::{Str, Value};
use std::cmp::Ordering;
use std::fmt::{self, Write};

/// One step of a path. Equality follows the ordering, so `80` and `80.0` are the same key.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A member of an object: `f:name`.
    Field(Str),
    /// A list item identified by its key fields, sorted by name: `k:{"name":"x"}`.
    Key(Vec<(Str, Value)>),
    /// An item of a set, identified by its value: `v:"x"`.
    Value(Value),
    /// An item identified by its position: `i:0`.
    Index(i64),
}

/// Why a `fieldsV1` object is not a set of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFields {
    /// A level of the set is not an object.
    #[error("expected an object of fields")]
    NoObject,
    /// A key lacks the prefix that gives its kind (`f:`, `k:`, `v:` or `i:`).
    #[error("missing colon: {0}")]
    NoColon(String),
    /// The key fields of a list item are not an object.
    #[error("expected object in key: {0}")]
    Key(String),
    /// A position is not a number.
    #[error("not an index: {0}")]
    Index(String),
    /// A value, or the key fields of an item, are not valid JSON.
    #[error(transparent)]
    Json(#[from] json::Error),
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        use PathElement::{Field, Index, Key, Value as Item};
        match (self, other) {
            (Field(a), Field(b)) => a.cmp(b),
            (Key(a), Key(b)) => {
                // Pairs are sorted by name, so comparing them in order is lexicographic and keeps the order total.
                for ((ka, va), (kb, vb)) in a.iter().zip(b) {
                    let o = ka.cmp(kb).then_with(|| compare_values(va, vb));
                    if o != Ordering::Equal {
                        return o;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Item(a), Item(b)) => compare_values(a, b),
            (Index(a), Index(b)) => a.cmp(b),
            (a, b) => a.class().cmp(&b.class()),
        }
    }
}

/// A total order of JSON values. As upstream, numbers compare by magnitude, so `1` and `1.0` are the same
/// key.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    // The order of kinds is upstream's (`value.Compare` in structured-merge-diff); it decides the stored order of
    // `fieldsV1`.
    fn class(v: &Value) -> u8 {
        match v {
            Value::Int(_) | Value::Float(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first = a
                .iter()
                .zip(b)
                .map(|(a, b)| compare_values(a, b))
                .find(|o| *o != Ordering::Equal);
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let first = a
                .iter()
                .zip(b.iter())
                .map(|((ka, va), (kb, vb))| ka.cmp(kb).then_with(|| compare_values(va, vb)))
                .find(|o| *o != Ordering::Equal);
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Int(a), Value::Float(b)) => compare_numbers(*a, *b),
        (Value::Float(a), Value::Int(b)) => compare_numbers(*b, *a).reverse(),
        // JSON has no NaN, but the sorted levels rely on a total order, which must not depend on that.
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        (a, b) => class(a).cmp(&class(b)),
    }
}

/// Compares exactly. Converting to `f64` would make distinct large integers equal to the same float and break
/// transitivity.
fn compare_numbers(i: i64, f: f64) -> Ordering {
    // 2^63, the first float above `i64::MAX`. Written out because `i64::MAX as f64` rounds up to it silently.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if f >= END {
        Ordering::Less
    } else if f < -END {
        Ordering::Greater
    } else {
        // Truncation is exact within the range. `+ 0.0` turns a negative zero fraction into zero, or -0.0 would be
        // below 0.
        i.cmp(&(f.trunc() as i64)).then(0.0f64.total_cmp(&(f.fract() + 0.0)))
    }
}

impl PathElement {
    fn class(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// Encodes the element as a key of `fieldsV1`.
    pub(super) fn encode(&self) -> Str {
        match self {
            Self::Field(name) => {
                let mut s = Str::with_capacity(name.len() + 2);
                s.push_str("f:");
                s.push_str(name);
                s
            }
            Self::Key(pairs) => {
                // The pairs are sorted already, so no `Map` is needed.
                let mut out = b"k:{".to_vec();
                for (i, (k, v)) in pairs.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    json::encode_str(k, &mut out);
                    out.push(b':');
                    json::encode(v, &mut out);
                }
                out.push(b'}');
                // JSON output is always UTF-8, so the default is never used.
                Str::from_utf8(&out).unwrap_or_default()
            }
            Self::Value(v) => {
                let mut out = b"v:".to_vec();
                json::encode(v, &mut out);
                Str::from_utf8(&out).unwrap_or_default()
            }
            Self::Index(i) => Str::from(format!("i:{i}")),
        }
    }

    /// Decodes a key of `fieldsV1`. `Ok(None)` for an unknown kind of element, which is dropped as upstream
    /// does.
    ///
    /// # Errors
    /// The key is not a path element.
    pub fn decode(s: &str) -> Result<Option<Self>, MalformedFields> {
        // Two bytes and a colon: element classes are a single character, as in `DeserializePathElement`.
        let Some((class, rest)) = s.split_at_checked(2).filter(|(c, _)| c.ends_with(':')) else {
            return Err(MalformedFields::NoColon(s.to_owned()));
        };
        Ok(Some(match class {
            "f:" => Self::Field(Str::new(rest)),
            "v:" => Self::Value(json::decode(rest.as_bytes())?),
            "k:" => match json::decode(rest.as_bytes())? {
                Value::Object(m) => {
                    // Sets live as long as the object is being written, one entry per list item; decoded maps grow by
                    // doubling.
                    let mut pairs: Vec<_> = m.into_iter().collect();
                    pairs.shrink_to_fit();
                    Self::Key(pairs)
                }
                _ => return Err(MalformedFields::Key(s.to_owned())),
            },
            "i:" => Self::Index(rest.parse().map_err(|_| MalformedFields::Index(s.to_owned()))?),
            // Forward compatible: a newer server may write element kinds that this one does not know.
            _ => return Ok(None),
        }))
    }
}

/// Writes a value as `value.ToString` of structured-merge-diff does: strings as Go's `%q`, and the members of an object
/// without anything between or around them.
fn write_value(v: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match v {
        Value::String(s) => f.write_str(&quote(s)),
        Value::Array(items) => {
            f.write_char('[')?;
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    f.write_char(',')?;
                }
                write_value(item, f)?;
            }
            f.write_char(']')
        }
        Value::Object(members) => members.iter().try_for_each(|(name, v)| {
            write!(f, "{name}=")?;
            write_value(v, f)
        }),
        v => f.write_str(&json::to_string(v)),
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(pairs) => {
                f.write_char('[')?;
                for (i, (k, v)) in pairs.iter().enumerate() {
                    write!(f, "{}{k}=", if i > 0 { "," } else { "" })?;
                    write_value(v, f)?;
                }
                f.write_char(']')
            }
            Self::Value(v) => {
                f.write_str("[=")?;
                write_value(v, f)?;
                f.write_char(']')
            }
            Self::Index(i) => write!(f, "[{i}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = Value> {
        let near = prop_oneof![
            Just(0i64),
            Just(1i64 << 53),
            Just(-(1i64 << 53)),
            Just(i64::MAX),
            Just(i64::MIN)
        ];
        (near, -3i64..4, 0..4).prop_map(|(n, by, form)| match form {
            0 => Value::Float(n.saturating_add(by) as f64),
            1 => Value::Float(n as f64 + by as f64 / 2.0),
            2 => Value::Float(-0.0),
            _ => Value::Int(n.saturating_add(by)),
        })
    }

    proptest! {
        #[test]
        fn numbers_are_totally_ordered(a in number(), b in number(), c in number()) {
            let [x, y, z] = [a, b, c].map(PathElement::Value);
            prop_assert_eq!(x.cmp(&y), y.cmp(&x).reverse());
            if x <= y && y <= z {
                prop_assert!(x <= z, "{} {} {}", x, y, z);
            }
            if x == y {
                prop_assert_eq!(x.cmp(&z), y.cmp(&z));
            }
        }
    }

    #[test]
    fn values_are_shown_as_structured_merge_diff_shows_them() {
        let shown = |v| PathElement::Key(vec![("k".into(), v), ("p".into(), Value::Int(5))]).to_string();
        assert_eq!(shown(Value::from("a\"b")), r#"[k="a\"b",p=5]"#);
        assert_eq!(shown(crate::json!([{"a": "x"}, {}, null])), r#"[k=[a="x",,null],p=5]"#);
        assert_eq!(shown(crate::json!({"a": true, "b": 1.5})), "[k=a=trueb=1.5,p=5]");
        assert_eq!(PathElement::Value(crate::json!({})).to_string(), "[=]");
    }

    #[test]
    fn integral_floats_equal_integers() {
        let (int, float) = (Value::Int(80), Value::Float(80.0));
        assert_eq!(PathElement::Value(int.clone()), PathElement::Value(float.clone()));
        let key = |v| PathElement::Key(vec![("port".into(), v)]);
        assert_eq!(key(int), key(float));
        assert!(PathElement::Value(Value::Int(80)) < PathElement::Value(Value::Float(80.5)));
        assert!(PathElement::Value(Value::Int(-80)) > PathElement::Value(Value::Float(-80.5)));
    }
}
