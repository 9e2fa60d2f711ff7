//! The generic store: REST verbs over one resource, the same for every kind.

pub mod resource;
pub mod schema;
pub mod strategy;

pub use resource::{Columns, Resource, Subresource, SubresourceBehaviour, Verbs};
pub use schema::Schema;
pub use strategy::{Context, Strategy};
