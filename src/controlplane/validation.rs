//! What is wrong with an object, field by field: upstream's rules, paths, words and order. Object metadata is the
//! registry's matter.

pub(super) mod admission;
pub(super) mod apiservice;
pub(super) mod autoscaling;
pub(super) mod common;
pub(super) mod crd;
pub(super) mod cronjob;
pub(super) mod csr;
pub(super) mod data;
pub(super) mod devices;
pub(super) mod endpoints;
pub(super) mod events;
pub(super) mod flowcontrol;
pub(super) mod ingress;
pub(super) mod internal;
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
