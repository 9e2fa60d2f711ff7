//! What a kind's fields are when nobody says so, as upstream's `SetDefaults_*`.

pub(super) mod admission;
pub(super) mod autoscaling;
pub(super) mod devices;
pub(super) mod flowcontrol;
pub(super) mod network;
pub(super) mod pod;
pub(super) mod service;
pub(super) mod storage;
pub(super) mod workloads;
