//! API machinery: the object tree, codecs, selectors, patches, statuses.
//!
//! No I/O and no async, so that every parser here can be fuzzed whole. No other room is visible from here.

pub mod apply;
pub mod codec;
pub mod field;
pub mod gvk;
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
pub mod x509;

pub use field::{ErrorList, FieldError, FieldPath};
pub use gvk::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use object::ObjectView;
pub use selector::{FieldSelector, LabelSelector};
pub use status::Status;
pub use value::{Map, Str, Value};
