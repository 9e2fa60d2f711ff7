//! How much may run at once.

pub mod max_in_flight;

pub use max_in_flight::{Kind, MaxInFlight};
