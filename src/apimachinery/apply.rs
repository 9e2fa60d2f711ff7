//! Server-side apply: who owns which fields of an object, and what follows from it.
//!
//! * [`FieldSet`] is a set of paths into an object, with the encoding `metadata.managedFields[].fieldsV1` has.
//! * [`typed`] walks objects with their schema: the set of fields of an object, the difference of two objects.
//! * [`managed`] keeps `metadata.managedFields` on create, update and patch.
//! * [`merge`] is apply itself: merging a configuration into the live object, conflicts, removal of what is no longer wanted.
//!
//! The schema is seen through [`ApplySchema`], which the built-in table and the schemas of custom resources implement.

mod changes;
mod check;
pub mod fieldset;
pub mod managed;
pub mod merge;
mod path;
pub mod typed;

pub use check::{check_config, decode_config, described};
pub use fieldset::{FieldSet, PathElement};
pub use managed::{Writer, restore_times, update_managed_fields, update_managed_fields_across};
pub use merge::{Applied, ApplyRequest, apply, apply_across};

use super::value::Value;

/// A type, as server-side apply sees it.
pub trait ApplySchema: Copy {
    /// What values of this type are.
    fn shape(self) -> Shape<Self>;
    /// The member `name` of an object; `None` where the schema does not allow it.
    fn member(self, name: &str) -> Option<Member<Self>>;
    /// The `i`-th key of a [`Shape::Keyed`] list.
    fn key(&self, i: usize) -> Option<&str>;
    /// The default of a field of this type that is a list key.
    fn key_default(self, name: &str) -> Option<Value>;
    /// An object of this type with nothing set, as the server's types write it: what a new object is compared with.
    fn empty(self) -> Value;
}

/// What values of a type are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape<S> {
    /// One value.
    Scalar(Scalar),
    /// An object whose members are owned one by one.
    Object,
    /// An object owned whole.
    AtomicObject,
    /// A list owned whole.
    AtomicList,
    /// A list of distinct scalars.
    Set(S),
    /// A list of objects told apart by keys.
    Keyed(S),
    /// No schema: objects are owned by member, lists whole.
    Deduced,
}

/// What a scalar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// A number.
    Numeric,
    /// A boolean.
    Boolean,
    /// Any scalar.
    Untyped,
}

/// A member of an object type.
#[derive(Clone, Copy, Debug)]
pub struct Member<S> {
    /// Its type.
    pub schema: S,
    /// It is a field the schema names, no key of a map.
    pub declared: bool,
}

/// An object at another version of its group.
#[derive(Clone, Debug)]
pub enum AtVersion<S> {
    /// The version has the same shape: nothing to convert.
    Same,
    /// The object converted, and its type there.
    Converted(Value, S),
    /// The version is not known any more: what is named in it is forgotten.
    Unknown,
}

/// Converts objects between the versions managers name their fields in.
pub trait Versions<S> {
    /// `object` (at whatever version it says it has) at `api_version`.
    fn at(&self, object: &Value, api_version: &str) -> AtVersion<S>;
    /// Which of the kind's shapes that is: objects at versions of one number are the same. `None`: the version is not known
    /// any more.
    fn shape(&self, api_version: &str) -> Option<usize>;
}

/// For kinds whose versions all have one shape.
#[derive(Clone, Copy, Debug)]
pub struct OneShape;

impl<S> Versions<S> for OneShape {
    fn at(&self, _: &Value, _: &str) -> AtVersion<S> {
        AtVersion::Same
    }

    fn shape(&self, _: &str) -> Option<usize> {
        Some(0)
    }
}

#[cfg(test)]
mod tests;
