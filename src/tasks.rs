//! Everything asynchronous that outlives a call: owned task groups, one-shot signals, coalescing work queues.

pub mod gather;
mod group;
mod queue;
mod signal;

pub use group::{Stragglers, TaskGroup};
pub use queue::{Backoff, WorkQueue};
pub use signal::Signal;
