//! What a kind's fields are when nobody says so, as upstream's `SetDefaults_*`.

pub(super) mod admission;
pub(super) mod flowcontrol;
pub(super) mod pod;
pub(super) mod service;
