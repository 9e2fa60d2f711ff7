//! Validation of the built-in kinds: upstream's rules (`pkg/apis/*/validation`), with identical paths, messages
//! and order, because clients see the causes.
//!
//! Each submodule has functions that take a value and return an `ErrorList`; the strategies call them.
//! Validation of object metadata is left to the registry, compilation of CEL and OpenAPI schemas to the modules
//! that evaluate them.

pub(super) mod admission;
pub(super) mod apiservice;
pub(super) mod autoscaling;
pub(super) mod claims;
pub(super) mod common;
pub(super) mod cronjob;
pub(super) mod csr;
pub(super) mod data;
pub(super) mod devices;
pub(super) mod endpoints;
pub(super) mod events;
pub(super) mod flowcontrol;
pub(super) mod go_form;
pub(super) mod ingress;
pub(super) mod job;
pub(super) mod network;
pub(super) mod node;
pub(super) mod pod;
pub(super) mod policy;
pub(super) mod quota;
pub(super) mod rbac;
pub(super) mod runtime_class;
pub(super) mod service;
mod sources;
pub(super) mod statefulset;
pub(super) mod storage;
pub(super) mod volumes;
pub(super) mod workloads;
