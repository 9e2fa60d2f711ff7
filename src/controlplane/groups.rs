//! The resource tables: one declarative file per API group, each with a function that returns its
//! [`Resource`]s. `controlplane::build` calls them. The notation is the builder in
//! [`resource_builder`](super::resource_builder).
//!
//! [`Resource`]: crate::registry::resource::Resource

pub(super) mod access;
pub(super) mod admissionregistration;
pub(super) mod apiextensions;
pub(super) mod apiregistration;
pub(super) mod apps;
pub(super) mod autoscaling;
pub(super) mod batch;
pub(super) mod certificates;
pub(super) mod coordination;
pub(super) mod core;
pub(super) mod discovery;
pub(super) mod events;
pub(super) mod flowcontrol;
pub(super) mod networking;
pub(super) mod node;
pub(super) mod policy;
pub(super) mod rbac;
pub(super) mod resource;
pub(super) mod scheduling;
pub(super) mod storage;
