//! What a kind does that its row cannot say.

pub(super) mod admission;
pub(super) mod apiservice;
pub(super) mod autoscaling;
pub(super) mod common;
pub(super) mod crd;
pub(super) mod csr;
pub(super) mod data;
pub(super) mod described;
pub(super) mod devices;
pub(super) mod endpoints;
pub(super) mod events;
pub(super) mod flowcontrol;
pub(super) mod lease;
pub mod namespace;
pub(super) mod network;
pub(super) mod node;
pub(super) mod pod;
pub(super) mod rbac;
pub(super) mod runtime_class;
pub(super) mod scheduling;
pub mod service;
pub(super) mod volumes;
pub(super) mod workloads;
