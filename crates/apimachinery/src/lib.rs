//! API machinery: the object tree, its codecs, selectors, patches, server-side apply, validation and [`Status`].
//!
//! Start at [`value::Value`], the tree every object is decoded into. Everything here is pure: no I/O, no async and no
//! dependency on the server modules, so every parser can be fuzzed in isolation.

pub mod apply;
pub mod codec;
pub mod field;
pub mod gvk;
pub mod interrupt;
pub mod names;
pub mod object;
pub mod patch;
pub mod quantity;
pub mod selector;
pub mod status;
pub mod table;
pub mod time;
pub mod validation;
pub mod value;

pub use field::{ErrorList, FieldError, FieldPath};
pub use gvk::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use object::ObjectView;
pub use selector::{FieldSelector, LabelSelector};
pub use status::Status;
pub use value::{Map, Str, Value};
