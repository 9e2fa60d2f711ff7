//! Everything asynchronous that outlives a call, or must not hold one up: owned task groups, the compute pool, one-shot
//! signals, coalescing work queues.

pub mod aside;
pub mod compute;
pub mod gather;
mod group;
mod queue;
mod signal;

pub use group::{Stragglers, TaskGroup};
pub use queue::{Backoff, WorkQueue};
pub use signal::Signal;
