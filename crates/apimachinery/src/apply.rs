//! Server-side apply: field ownership (`metadata.managedFields`) and merging of apply patches.
//!
//! * [`FieldSet`] is a set of paths into an object; it reads and writes the `fieldsV1` encoding of
//!   `metadata.managedFields`.
//! * [`typed`] walks objects along their schema: the field set of an object, the difference between two
//!   objects.
//! * [`managed`] updates `metadata.managedFields` on create, update and patch.
//! * [`apply()`] is apply itself: merging a configuration into the live object, detecting conflicts, removing
//!   fields that the configuration no longer contains. [`overlay()`] merges without ownership.
//!
//! Start at [`apply()`]. Schemas are accessed through [`ApplySchema`], implemented by the built-in schema
//! table and by the schemas of custom resources. Storage and retries on conflict belong to the registry and
//! the PATCH handler.

mod changes;
mod check;
pub mod fieldset;
pub mod managed;
mod merge;
mod overlay;
mod path;
pub mod typed;

pub use check::{check_config, decode_config, described};
pub use fieldset::{FieldSet, PathElement};
pub use managed::{Writer, update_managed_fields, update_managed_fields_across};
pub use merge::{Applied, ApplyRequest, apply, apply_across};
pub use overlay::{OverlayError, overlay};

use super::value::Value;

/// A node of a schema, reduced to what server-side apply needs.
///
/// Objects without a schema:
///
/// ```
/// use torana_apimachinery::Value;
/// use torana_apimachinery::apply::{ApplySchema, Member, Shape, overlay};
/// use torana_apimachinery::json;
///
/// #[derive(Clone, Copy)]
/// struct Untyped;
///
/// impl ApplySchema for Untyped {
///     fn shape(self) -> Shape<Self> {
///         Shape::Deduced
///     }
///     fn member(self, _: &str) -> Option<Member<Self>> {
///         Some(Member { schema: self, declared: false })
///     }
///     fn key(&self, _: usize) -> Option<&str> {
///         None
///     }
///     fn key_default(self, _: &str) -> Option<Value> {
///         None
///     }
///     fn empty(self) -> Value {
///         Value::object()
///     }
/// }
///
/// # fn main() -> Result<(), torana_apimachinery::apply::OverlayError> {
/// let merged = overlay(Untyped, &json!({"spec": {"a": 1}}), &json!({"spec": {"b": 2}}))?;
/// assert_eq!(merged, json!({"spec": {"a": 1, "b": 2}}));
/// # Ok(())
/// # }
/// ```
pub trait ApplySchema: Copy {
    /// The structure and ownership rule of values of this type.
    fn shape(self) -> Shape<Self>;
    /// The member `name` of an object; `None` if the schema does not allow it.
    fn member(self, name: &str) -> Option<Member<Self>>;
    /// The `i`-th key of a [`Shape::Keyed`] list.
    fn key(&self, i: usize) -> Option<&str>;
    /// The default value of field `name` of a list element, used when a list key is absent.
    fn key_default(self, name: &str) -> Option<Value>;
    /// The type of the elements of a list owned as a whole, if they are checked.
    fn elements(self) -> Option<Self> {
        None
    }

    /// The zero value of this type as upstream's Go types serialise it; a newly created object is compared
    /// with it.
    fn empty(self) -> Value;
}

/// The structure of a type, and the granularity at which its fields are owned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape<S> {
    /// A value without members, of this type.
    Scalar(Scalar),
    /// An object whose members are owned individually.
    Object,
    /// An object owned as a whole.
    AtomicObject,
    /// A list owned as a whole.
    AtomicList,
    /// A list of unique scalars (`x-kubernetes-list-type: set`).
    Set(S),
    /// A list of objects identified by their key fields (`x-kubernetes-list-type: map`).
    Keyed(S),
    /// No schema: objects are owned by member, lists as a whole.
    Deduced,
    /// No schema: a value of any type, owned as a whole.
    Untyped,
}

/// The scalar types a schema distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A plain string, or bytes in base64.
    String,
    /// An integer or a float, between which upstream's schemas do not distinguish.
    Numeric,
    /// `true` or `false`.
    Boolean,
    /// A string, number or boolean: quantities, times, IntOrString and strings of other formats.
    Untyped,
}

/// A member of an object type.
#[derive(Clone, Copy, Debug)]
pub struct Member<S> {
    /// The node that describes the member's value.
    pub schema: S,
    /// True for a field declared by the schema, false for a key of a map.
    pub declared: bool,
}

/// The result of converting an object to another version of its group.
#[derive(Clone, Debug)]
pub enum AtVersion<S> {
    /// Both versions have the same shape, so no conversion is needed.
    Same,
    /// The converted object, and its type in the new version.
    Converted(Value, S),
    /// The version is no longer served; ownership recorded in it is dropped.
    Unknown,
}

/// Converts objects between the API versions that `managedFields` entries are recorded in.
pub trait Versions<S> {
    /// Converts `object` from the version in its `apiVersion` to `api_version`.
    fn at(&self, object: &Value, api_version: &str) -> AtVersion<S>;
    /// The index of the shape that `api_version` uses; versions with the same index need no conversion.
    /// `None`: the version is no longer served.
    fn shape(&self, api_version: &str) -> Option<usize>;
}

/// [`Versions`] of a kind whose versions all have the same shape.
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
