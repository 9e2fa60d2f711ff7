//! The generic registry: REST operations on stored resources, the same code for every kind (upstream:
//! `registry/generic/registry`).
//!
//! Start at [`Store`]. A [`Resource`] describes a kind, its [`Strategy`] the kind's behaviour, its [`Schema`] the
//! shape of its objects. HTTP is left to `endpoints`, persistence and watches to `storage`.

mod admit;
pub mod converting;
mod create;
mod custom;
mod delete;
mod delete_collection;
mod dry_run;
pub mod errors;
mod lookup;
mod meta;
pub mod resource;
pub mod scale;
pub mod schema;
mod size_fallback;
pub mod store;
pub mod strategy;
mod update;

pub use lookup::{CustomKinds, StoreLookup, StoredResource};
pub(crate) use meta::dedup_owner_references;
pub use resource::{Columns, Resource, Subresource, SubresourceBehaviour, Verbs};
pub use schema::Schema;
pub use store::{AuthorizeCreate, DeleteOptions, Deleted, ResultObject, Store, Updated, WriteOptions};
pub use strategy::{Context, GarbageCollection, RestStrategy, Strategy};
pub(crate) use update::parse_version;
