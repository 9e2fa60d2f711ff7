//! Priority and fairness: limits concurrent requests, fairly between flows, and queues the others.
//!
//! [`FlowController::enter`] classifies a request by FlowSchema and gives it a place in its priority
//! [`level`]. The parts of fair queuing are pure: [`queueset`] (who is next), [`seats`] (how many seats a
//! level has), [`work_estimate`] (how many seats a request takes). [`MaxInFlight`] is the simple limiter that
//! applies if priority and fairness is disabled.

pub(crate) mod classify;
mod clock;
pub(crate) mod controller;
pub(crate) mod dump;
mod housekeeping;
pub(crate) mod integrator;
pub(crate) mod level;
pub(crate) mod max_in_flight;
mod metrics;
pub(crate) mod queueset;
mod read_write;
pub(crate) mod retry_after;
pub(crate) mod seat_seconds;
pub(crate) mod seats;
pub(crate) mod shuffle_sharding;
mod utilization;
pub(crate) mod watch_tracker;
pub(crate) mod work_estimate;

pub(crate) use classify::{IndexedSchema, Uids};
pub(crate) use controller::Entered;
pub use controller::{FlowController, Mandatory};
pub(crate) use level::{Permit, TooMany};
pub use max_in_flight::{MaxInFlight, RequestClass};
