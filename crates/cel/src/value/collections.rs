//! Lists, maps and objects: borrowed from the input, or computed.

use super::{Fail, Key, Out, Text, Val};
use crate::types::{ListType, ObjectType, Schema, unescape, untyped};
use std::collections::BTreeMap;
use std::sync::Arc;
use torana_apimachinery::{Map, Str, Value};

/// A list, borrowed from the input or computed.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Part of the input, with the schema of the list.
    Tree(&'a [Value], &'a Schema),
    /// Computed; shared, so that cloning a value is cheap.
    Shared(Arc<Vec<Val<'a>>>),
    /// Computed from a list of the input whose elements are compared by value (a set).
    Typed(Arc<Vec<Val<'a>>>, &'a ListType),
}

/// A map, borrowed from the input or computed.
#[derive(Clone, Debug)]
pub enum Dict<'a> {
    /// Part of the input, with the schema of its values.
    Tree(&'a Map, &'a Schema),
    /// Computed; shared as computed lists are.
    Shared(Arc<BTreeMap<Key<'a>, Val<'a>>>),
}

/// An object that an expression constructed.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The type that the expression names.
    pub of: Arc<ObjectType>,
    /// Its fields, sorted by name.
    pub fields: BTreeMap<Str, Val<'a>>,
}

impl<'a> List<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Tree(items, _) => items.len(),
            Self::Shared(items) | Self::Typed(items, _) => items.len(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a place, or why the input has none of the schema's type there.
    pub fn get(&self, i: usize) -> Option<Out<'a>> {
        match self {
            Self::Tree(items, of) => {
                // Elements without a schema of their own follow the list's: JSON stays JSON.
                let of = of.items.as_deref().unwrap_or_else(|| untyped(&of.ty));
                items.get(i).map(|v| Val::of(v, of))
            }
            Self::Shared(items) | Self::Typed(items, _) => items.get(i).cloned().map(Ok),
        }
    }

    /// The elements in order.
    // By index, because conversions happen on access; the default is never used within the length.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Out<'a>> {
        (0..self.len()).map(|i| self.get(i).unwrap_or(Ok(Val::Null)))
    }

    pub(crate) fn to_vec(&self) -> Result<Vec<Val<'a>>, Fail> {
        self.iter().collect()
    }

    pub(crate) fn list_type(&self) -> &'a ListType {
        match self {
            Self::Tree(_, of) => &of.list_type,
            Self::Shared(_) => &ListType::Atomic,
            Self::Typed(_, of) => of,
        }
    }
}

impl<'a> Dict<'a> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Tree(m, _) => m.len(),
            Self::Shared(m) => m.len(),
        }
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &Val<'a>) -> Option<Out<'a>> {
        match (self, key) {
            (Self::Tree(m, of), Val::String(key)) => m.get(key).map(|v| Val::of(v, of)),
            // Keys of the input are strings; another type finds nothing, without an error.
            (Self::Tree(..), _) => None,
            (Self::Shared(m), key) => m.get(&Key::find(key)?).cloned().map(Ok),
        }
    }

    /// The value of a key that an expression selects or indexes with, which may be escaped.
    pub(crate) fn element(&self, key: &Val<'a>) -> Option<Out<'a>> {
        match (self, key) {
            // Only selection and indexing unescape; `in` compares the literal key.
            (Self::Tree(m, of), Val::String(name)) => tree_member(m, name, of),
            (_, key) => self.get(key),
        }
    }

    /// The value of a string key that an expression selects.
    pub(crate) fn member(&self, name: &'a str) -> Option<Out<'a>> {
        match self {
            Self::Tree(m, of) => tree_member(m, name, of),
            Self::Shared(m) => m.get(&Key::String(Text::Borrowed(name))).cloned().map(Ok),
        }
    }

    /// The entries, sorted by key.
    ///
    /// # Errors
    /// A value of the input is not of the schema's type.
    pub fn entries(&self) -> Result<Vec<(Val<'a>, Val<'a>)>, Fail> {
        match self {
            Self::Tree(m, of) => {
                let pair = |(k, v)| Ok((Val::String(Text::Borrowed(k)), Val::of(v, of)?));
                m.iter().map(pair).collect()
            }
            Self::Shared(m) => Ok(m.iter().map(|(k, v)| (k.val(), v.clone())).collect()),
        }
    }
}

fn tree_member<'a>(map: &'a Map, name: &str, of: &'a Schema) -> Option<Out<'a>> {
    // A name that is not an escape is the key itself.
    let found = match of.escaped_key.then(|| unescape(name)).flatten() {
        Some(key) => map.get(&key),
        None => map.get(name),
    };
    found.map(|v| Val::of(v, of))
}

/// Maximum number of types with wrong names in an error.
const MAX_ERRORS: usize = 100;

/// Constructed objects whose types are not named by the field they are in, a line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct WrongNames(Vec<String>);

impl<'a> Record<'a> {
    /// Whether the types of the objects that are constructed here are named by the path of the field they are
    /// in, as the types of a mutating policy are: `Object.spec.template`.
    ///
    /// # Errors
    /// The types that have another name.
    pub fn check_names(&self) -> Result<(), WrongNames> {
        let mut errors = Vec::new();
        self.collect(&self.of.name, &mut errors);
        if errors.is_empty() {
            Ok(())
        } else {
            Err(WrongNames(errors))
        }
    }

    fn collect(&self, path: &str, errors: &mut Vec<String>) {
        // Bounded by number: each message repeats a path that grows with the depth.
        if self.of.name != path && errors.len() < MAX_ERRORS {
            let name = &self.of.name;
            errors.push(format!(
                "unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object type"
            ));
        }
        for (name, value) in &self.fields {
            collect(value, &format!("{path}.{name}"), errors);
        }
    }
}

fn collect(v: &Val<'_>, path: &str, errors: &mut Vec<String>) {
    match v {
        Val::Record(record) => record.collect(path, errors),
        Val::List(List::Shared(items) | List::Typed(items, _)) => items.iter().for_each(|v| collect(v, path, errors)),
        Val::Map(Dict::Shared(map)) => map.values().for_each(|v| collect(v, path, errors)),
        _ => {}
    }
}
