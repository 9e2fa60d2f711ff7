//! Kubernetes API machinery: the object tree, its codecs, selectors, patches, server-side apply, validation
//! and [`Status`].
//!
//! Start at [`Value`], the tree every object is decoded into. Everything here is pure: no I/O, no async and
//! no knowledge of a server, so every parser can be fuzzed in isolation. Code that depends on the types of
//! the built-in kinds is in `torana-kube-schema`, which implements [`apply::ApplySchema`] and
//! [`patch::strategic::PatchSchema`] for them.
//!
//! ```
//! use torana_apimachinery::codec::{json, yaml};
//! use torana_apimachinery::patch::merge;
//! use torana_apimachinery::{LabelSelector, json};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pod = yaml::decode(b"metadata: {name: web, labels: {app: web}}")?;
//! merge::apply(&mut pod, json!({"metadata": {"labels": {"tier": "front"}}}));
//!
//! let selector = LabelSelector::parse("app=web,tier in (front,back)")?;
//! assert!(selector.matches_map(pod.at(&["metadata", "labels"])));
//! assert_eq!(
//!     json::to_string(&pod),
//!     r#"{"metadata":{"labels":{"app":"web","tier":"front"},"name":"web"}}"#
//! );
//! # Ok(())
//! # }
//! ```

pub mod apply;
pub mod codec;
pub mod conditions;
pub mod field;
pub mod gvk;
pub mod interrupt;
pub mod jsonpath;
pub mod names;
pub mod object;
pub mod patch;
pub mod quantity;
pub mod regexp;
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
