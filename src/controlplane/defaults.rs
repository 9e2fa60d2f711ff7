//! Field defaults per kind, ported from upstream's `SetDefaults_*` functions (`pkg/apis/*/*/defaults.go`).
//!
//! Each function takes a normalized object and fills in unset fields. Strategies call them before validation.

pub(super) mod admission;
pub(super) mod autoscaling;
pub(super) mod devices;
pub(super) mod flowcontrol;
pub(super) mod network;
pub(super) mod pod;
pub(super) mod service;
pub(super) mod storage;
pub(super) mod workloads;
