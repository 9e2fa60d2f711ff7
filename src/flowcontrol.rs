//! Priority and fairness: how many requests of whom run at once, and who waits.
//!
//! [`FlowController::enter`] classifies a request by FlowSchema and gives it a place in its priority [`level`].
//! The parts of fair queuing are pure: [`queueset`] (who is next), [`seats`] (how many seats a level has),
//! [`work_estimate`] (how many seats a request takes). [`MaxInFlight`] is the simple limiter that applies if priority
//! and fairness is disabled.

pub mod classify;
mod clock;
pub mod controller;
pub mod dump;
mod housekeeping;
pub mod integrator;
pub mod level;
pub mod max_in_flight;
mod metrics;
pub mod queueset;
pub mod retry_after;
pub mod seat_seconds;
pub mod seats;
pub mod shuffle_sharding;
mod utilization;
pub mod watch_tracker;
pub mod work_estimate;

pub use controller::{Entered, FlowController, Mandatory};
pub use level::{Permit, TooMany};
pub use max_in_flight::{MaxInFlight, RequestClass};
