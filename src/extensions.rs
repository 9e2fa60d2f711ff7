//! Custom resources: kinds that clients define at run time, described by a JSON schema.
//!
//! [`custom_resources`] serves the resources that CustomResourceDefinitions define. [`definitions`] validates
//! definitions, [`naming`] is the controller that accepts their names, and [`conversion`] converts objects
//! between their versions. [`schema`](crate::schema) reads and applies their schemas.

pub(crate) mod conversion;
pub(crate) mod custom_resources;
pub(crate) mod definitions;
pub(crate) mod naming;
