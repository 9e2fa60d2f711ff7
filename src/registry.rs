//! The generic registry: REST operations on stored resources, the same code for every kind (upstream:
//! `registry/generic/registry`).
//!
//! Start at [`Store`]. A [`Resource`] describes a kind, its [`Strategy`] the kind's behaviour, its [`Schema`]
//! the shape of its objects. HTTP is left to `endpoints`, persistence and watches to `storage`.

mod admit;
pub(crate) mod converting;
mod create;
mod custom;
mod delete;
mod delete_collection;
mod dry_run;
mod empties;
pub(crate) mod errors;
mod in_process;
mod lookup;
mod meta;
pub(crate) mod resource;
pub(crate) mod scale;
pub(crate) mod schema;
pub(crate) mod selectable_fields;
mod size_fallback;
pub(crate) mod store;
pub(crate) mod strategy;
#[cfg(test)]
mod testing;
mod update;
pub(crate) mod write;

pub use in_process::{StoreEvent, StoreWatch};
pub(crate) use lookup::{CustomKinds, StoreLookup, StoredResource};
pub(crate) use meta::dedup_owner_references;
pub(crate) use meta::parse_version;
pub(crate) use resource::{Columns, Resource, Subresource, SubresourceBehaviour, Verbs};
pub(crate) use schema::Schema;
pub use store::Store;
pub(crate) use strategy::{BodyEmpties, RestStrategy};
pub use strategy::{Context, Strategy};
pub(crate) use write::{AuthorizeCreate, DeleteOptions, Deleted, ResultObject, Updated, WriteOptions};
