//! Per-kind behaviour of the built-in resources: implementations of
//! [`Strategy`](crate::registry::strategy::Strategy), upstream's `pkg/registry/*/*/strategy.go`.
//!
//! Simple kinds are data ([`declarative::DeclarativeStrategy`]); kinds with state or authorization checks
//! (services, RBAC, resource claims) implement the trait. The rules themselves are in `validation`,
//! defaulting is in `defaults`.

pub(super) mod admission;
pub(super) mod apiservice;
pub(super) mod autoscaling;
pub(super) mod common;
pub(super) mod csr;
pub(super) mod data;
pub(super) mod declarative;
pub(super) mod devices;
mod disabled_fields;
pub(super) mod endpoints;
pub(super) mod events;
pub(super) mod flowcontrol;
pub(super) mod lease;
pub(crate) mod namespace;
pub(super) mod network;
pub(super) mod node;
pub(super) mod pod;
pub(super) mod rbac;
pub(super) mod runtime_class;
pub(super) mod scheduling;
pub(crate) mod service;
pub(super) mod volumes;
pub(super) mod workloads;
