//! The rows: one declarative file per API group.

pub(super) mod access;
pub(super) mod admissionregistration;
pub(super) mod apiextensions;
pub(super) mod apiregistration;
pub(super) mod coordination;
pub(super) mod core;
pub(super) mod discovery;
pub(super) mod flowcontrol;
pub(super) mod rbac;
pub(super) mod scheduling;
