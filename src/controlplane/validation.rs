//! What is wrong with an object, field by field: upstream's rules, paths, words and order. Object metadata is the
//! registry's matter.

pub(super) mod admission;
pub(super) mod apiservice;
pub(super) mod crd;
pub(super) mod data;
pub(super) mod endpoints;
pub(super) mod events;
pub(super) mod flowcontrol;
pub(super) mod node;
pub(super) mod pod;
pub(super) mod rbac;
pub(super) mod service;
