//! Everything asynchronous that outlives a call, or must not hold one up: owned task groups, the compute pool, one-shot
//! signals, coalescing work queues.

pub mod compute;
pub mod gather;
mod group;
mod off_thread;
mod queue;
mod signal;

pub use group::{Stragglers, TaskGroup};
pub use off_thread::off_thread;
pub use queue::{Backoff, WorkQueue};
pub use signal::Signal;
