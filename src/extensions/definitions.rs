//! CustomResourceDefinition objects: defaults, validation, and what an update may change.
//!
//! [`CustomResourceDefinition`] is the strategy of their row in `controlplane`. Schemas are checked by
//! [`schema`](super::schema); serving the defined resources is left to the other modules of `extensions`.

mod strategy;
mod validation;

pub use strategy::CustomResourceDefinition;
