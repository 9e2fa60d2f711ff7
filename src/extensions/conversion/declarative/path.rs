//! Paths of rules: `.spec.size`, or `.spec.ports[*].number` for a field of every item.

use crate::apimachinery::value::{Map, Str, Value};
use std::fmt;

/// Keys from the root of an object, or of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys(pub Vec<Str>);

/// The path to the items of lists and the values of maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Items(pub Vec<Keys>);

/// Keys that the rules of a version do not reach.
const RESERVED: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Maximum keys of a path. A pair stores every prefix of its paths.
const MAX_KEYS: usize = 64;

/// Why a path is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidPath {
    #[error("must have at most {MAX_KEYS} keys")]
    TooDeep,
    #[error("{0:?} is not a path: it must have the form .a.b or .a[*].b")]
    Form(String),
    #[error("{0:?} is not a path: apiVersion, kind and metadata are the same in all versions")]
    Reserved(String),
}

/// Parses a path into that of its items, which is empty without `[*]`, and the keys below.
pub(super) fn parse(text: &str) -> Result<(Items, Keys), InvalidPath> {
    // Counted in the text, before anything is allocated per key.
    if text.matches('.').count() > MAX_KEYS {
        return Err(InvalidPath::TooDeep);
    }
    let mut parts = text.split("[*]").map(Keys::parse).collect::<Option<Vec<_>>>();
    let Some(last) = parts.as_mut().and_then(Vec::pop) else {
        return Err(InvalidPath::Form(text.to_owned()));
    };
    let items = Items(parts.unwrap_or_default());
    // `parse` guarantees at least one key in every part, so the index is safe.
    let first = items.0.first().unwrap_or(&last);
    if RESERVED.iter().any(|key| first.0[0] == *key) {
        return Err(InvalidPath::Reserved(text.to_owned()));
    }
    Ok((items, last))
}

impl Keys {
    fn parse(text: &str) -> Option<Self> {
        let keys = text.strip_prefix('.')?.split('.');
        let keys: Vec<Str> = keys.map(Str::new).collect();
        // The characters of schema property names that need no quoting; others would be ambiguous with the path
        // syntax.
        let is_plain = |key: &Str| {
            !key.is_empty()
                && key
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'$'))
        };
        keys.iter().all(is_plain).then_some(Self(keys))
    }

    /// The value there, which may be null.
    pub(crate) fn get<'v>(&self, v: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(v, |v, key| v.as_object()?.get(key))
    }

    pub(crate) fn take(&self, v: &mut Value) -> Option<Value> {
        let keys: Vec<&str> = self.0.iter().map(Str::as_str).collect();
        v.unset(&keys)
    }

    /// Removes the value, and the objects around it that become empty by that.
    pub(crate) fn take_with_parents(&self, v: &mut Value) -> Option<Value> {
        fn take(keys: &[Str], map: &mut Map) -> Option<Value> {
            let (first, rest) = keys.split_first()?;
            if rest.is_empty() {
                return map.remove(first);
            }
            let inner = map.get_mut(first)?.as_object_mut()?;
            let taken = take(rest, inner)?;
            // Only objects that this removal emptied go: an object that was empty before is data.
            if inner.is_empty() {
                map.remove(first);
            }
            Some(taken)
        }
        take(&self.0, v.as_object_mut()?)
    }

    /// Sets the value, creating the objects around it.
    pub(crate) fn put(&self, v: &mut Value, value: Value) {
        let keys: Vec<&str> = self.0.iter().map(Str::as_str).collect();
        v.set(&keys, value);
    }

    /// The keys of the object around the value; `None` at the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        (!parent.is_empty()).then(|| Self(parent.to_vec()))
    }
}

impl Items {
    /// Calls `f` for every item that is an object.
    pub(crate) fn each(&self, v: &mut Value, f: &mut dyn FnMut(&mut Value)) {
        fn each(path: &[Keys], v: &mut Value, f: &mut dyn FnMut(&mut Value)) {
            let Some((first, rest)) = path.split_first() else {
                return f(v);
            };
            let keys: Vec<&str> = first.0.iter().map(Str::as_str).collect();
            match v.at_mut(&keys) {
                // Both shapes of `[*]`: list items and map values.
                Some(Value::Array(items)) => items.iter_mut().for_each(|item| each(rest, item, f)),
                Some(Value::Object(map)) => map.iter_mut().for_each(|(_, item)| each(rest, item, f)),
                _ => {}
            }
        }
        // Items of another type are left to validation.
        let mut only_objects = |v: &mut Value| {
            if v.as_object().is_some() {
                f(v);
            }
        };
        each(&self.0, v, &mut only_objects);
    }
}

/// The schema of an object's field.
pub(super) fn node<'s>(root: &'s Value, keys: &Keys) -> Option<&'s Value> {
    keys.0
        .iter()
        .try_fold(root, |schema, key| schema.get("properties").as_object()?.get(key))
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|key| write!(f, ".{key}"))
    }
}

impl fmt::Display for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|keys| write!(f, "{keys}[*]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_a_limited_number_of_keys() {
        assert!(parse(&".a".repeat(MAX_KEYS)).is_ok());
        assert!(matches!(parse(&".a".repeat(MAX_KEYS + 1)), Err(InvalidPath::TooDeep)));
        assert!(matches!(
            parse(&".a[*]".repeat(MAX_KEYS + 1)),
            Err(InvalidPath::TooDeep)
        ));
    }
}
