//! How much may run at once, and which flow a request belongs to.

pub mod classify;
pub mod max_in_flight;

pub use classify::{Flow, FlowSchemas};
pub use max_in_flight::{Kind, MaxInFlight};
