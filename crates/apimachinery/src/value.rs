//! [`Value`]: the dynamic object tree used wherever the server must look inside an object.
//!
//! Stored objects and responses are bytes; the tree only exists between decoding a request and encoding the
//! object for storage. Maps are sorted vectors: Kubernetes objects have few keys per level, lookups stay
//! within contiguous memory, and encoding is deterministic, so that "unchanged" is a comparison of bytes.

mod convert;
mod map;

pub use map::Map;
pub(crate) use map::sort_pairs;

use compact_str::CompactString;
use std::hash::{Hash, Hasher};

/// The string type of the tree: up to 24 bytes are stored inline.
pub type Str = CompactString;

/// A JSON value with Kubernetes' number rules: an integer literal that fits `i64` is an integer, any other
/// number a float.
///
/// ```
/// use torana_apimachinery::{Value, json};
///
/// let mut pod = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3}});
/// assert_eq!(pod.at(&["spec", "replicas"]).as_i64(), Some(3));
/// // An absent value reads as null, or as the empty string.
/// assert!(pod.at(&["status", "phase"]).is_null());
/// assert_eq!(pod.str_at(&["metadata", "namespace"]), "");
///
/// pod.set(&["metadata", "labels", "app"], "web");
/// assert_eq!(pod.at(&["metadata", "labels"]), &json!({"app": "web"}));
/// assert_eq!(pod.unset(&["metadata", "labels", "app"]), Some(Value::from("web")));
/// ```
#[derive(Clone, PartialEq, Default)]
pub enum Value {
    /// JSON `null`.
    #[default]
    Null,
    /// JSON `true` or `false`.
    Bool(bool),
    /// An integer literal that fits 64 bits.
    Int(i64),
    /// Every other number. Never NaN or infinite.
    Float(f64),
    /// A string, up to 24 bytes of it without an allocation.
    String(Str),
    /// An array, whose elements may differ in type.
    Array(Vec<Value>),
    /// An object with sorted keys.
    Object(Map),
}

// `get` returns references, so an absent member needs a value that lives long enough.
static NULL: Value = Value::Null;

// === impl Value ===

impl Value {
    /// An empty object.
    pub const fn object() -> Self {
        Self::Object(Map::new())
    }

    /// The member under `key`, or null if this is not an object or has no such key.
    pub fn get(&self, key: &str) -> &Value {
        self.as_object().and_then(|m| m.get(key)).unwrap_or(&NULL)
    }

    /// The value at `path`, descending through objects, or null.
    pub fn at(&self, path: &[&str]) -> &Value {
        path.iter().fold(self, |v, k| v.get(k))
    }

    /// Mutable access to the value at `path`; `None` if it does not exist.
    pub fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter().try_fold(self, |v, k| v.as_object_mut()?.get_mut(k))
    }

    /// Sets the value at `path`, creating objects on the way and replacing non-objects.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        // Missing members are inserted as null and become objects one level further down.
        let slot = path.iter().fold(self, |v, k| v.make_object().entry(k));
        *slot = value.into();
    }

    /// Removes the value at `path` and returns it.
    pub fn unset(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        // Parents that are absent or not objects end the walk without creating anything.
        self.at_mut(parents)?.as_object_mut()?.remove(last)
    }

    /// The string at `path`, or `""` if it is absent or not a string.
    pub fn str_at(&self, path: &[&str]) -> &str {
        self.at(path).as_str().unwrap_or("")
    }

    /// Replaces this value by an empty object unless it is an object, and returns the object.
    pub fn make_object(&mut self) -> &mut Map {
        if !matches!(self, Self::Object(_)) {
            *self = Self::object();
        }
        match self {
            Self::Object(m) => m,
            _ => unreachable!("made an object above"),
        }
    }

    /// The object, if this is one.
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(m) => Some(m),
            _ => None,
        }
    }

    /// Mutable access to the object, if this is one.
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Object(m) => Some(m),
            _ => None,
        }
    }

    /// The elements, if this is an array.
    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            Self::Array(a) => Some(a),
            _ => None,
        }
    }

    /// Mutable access to the elements, if this is an array.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Self::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The elements of an array; an empty slice for any other value.
    pub fn items(&self) -> &[Value] {
        self.as_array().map(Vec::as_slice).unwrap_or(&[])
    }

    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// The integer, if this is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The number as a float, if this is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(*i as f64),
            Self::Float(f) => Some(*f),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// True for null, and so for an absent member as [`get`](Self::get) returns it.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// True if the object's encoding is estimated to have more than `bytes` bytes. Looks at no more than it has
    /// to in order to know.
    pub fn is_larger_than(&self, bytes: usize) -> bool {
        self.measure(bytes).is_none()
    }

    /// Subtracts the size of this value from `bytes`; `None` if it does not fit.
    fn measure(&self, bytes: usize) -> Option<usize> {
        /// Quotes, colon and comma of a member, or a short scalar.
        const NODE: usize = 4;
        // Counting down stops at the first excess, so a huge object costs no more than the limit.
        let left = bytes.checked_sub(NODE)?;
        match self {
            Self::String(s) => left.checked_sub(s.len()),
            Self::Array(items) => items.iter().try_fold(left, |left, v| v.measure(left)),
            Self::Object(map) => map
                .iter()
                .try_fold(left, |left, (k, v)| v.measure(left.checked_sub(k.len())?)),
            _ => Some(left),
        }
    }

    /// True for null, `false`, 0, `""`, `[]` and `{}`, the values that Go's `omitempty` omits.
    pub fn is_empty_value(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(b) => !b,
            Self::Int(i) => *i == 0,
            Self::Float(f) => *f == 0.0,
            Self::String(s) => s.is_empty(),
            Self::Array(a) => a.is_empty(),
            Self::Object(m) => m.is_empty(),
        }
    }
}

/// Sound because floats are never NaN.
impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Different types may have equal content (`0` and `0.0`), and are not equal.
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Null => {}
            Self::Bool(b) => b.hash(state),
            Self::Int(i) => i.hash(state),
            // `0.0` and `-0.0` are equal and must hash alike; adding zero normalises the sign.
            Self::Float(f) => (f + 0.0).to_bits().hash(state),
            Self::String(s) => s.hash(state),
            Self::Array(a) => a.hash(state),
            Self::Object(m) => m.hash(state),
        }
    }
}

/// Builds a [`Value`] with the syntax of `serde_json::json!`. It converts through `serde_json`, so keep it
/// off hot paths.
///
/// ```
/// let (name, ports) = ("web", vec![80, 443]);
/// let service = torana_apimachinery::json!({"metadata": {"name": name}, "spec": {"ports": ports}});
/// assert_eq!(service.at(&["spec", "ports"]).items().len(), 2);
/// ```
#[macro_export]
macro_rules! json {
    ($($t:tt)*) => { $crate::Value::from($crate::value::__serde_json::json!($($t)*)) };
}
#[doc(hidden)]
pub use serde_json as __serde_json;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn sizes_are_estimated_as_far_as_needed() {
        let object = json!({"a": [1, true, null], "name": "x".repeat(100)});
        let encoded = crate::codec::json::to_vec(&object).len();
        assert!(object.is_larger_than(encoded / 2) && !object.is_larger_than(2 * encoded));
        assert!(json!([]).is_larger_than(0) && !json!([]).is_larger_than(4));
    }

    #[test]
    fn equal_values_have_equal_hashes() {
        let set: HashSet<Value> = [
            Value::Float(0.0),
            Value::Float(-0.0),
            Value::Int(0),
            json!({"a": [1]}),
            json!({"a": [1]}),
        ]
        .into_iter()
        .collect();
        assert_eq!(set.len(), 3);
    }

    #[test]
    fn set_creates_parents_and_get_tolerates_absence() {
        let mut v = Value::object();
        v.set(&["metadata", "labels", "x"], "y");
        assert_eq!(v.str_at(&["metadata", "labels", "x"]), "y");
        assert!(v.at(&["metadata", "nope", "x"]).is_null());
        assert_eq!(v.unset(&["metadata", "labels", "x"]), Some("y".into()));
    }
}
