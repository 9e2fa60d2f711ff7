//! Execution of asynchronous work beyond a single call: owned task groups, the compute pool, one-shot signals, work
//! queues, and write coalescing for connections. The runtime itself is created in `main.rs`.

pub mod coalesce;
pub mod compute;
mod group;
mod off_thread;
mod queue;
mod signal;

pub use group::{Stragglers, TaskGroup};
pub use off_thread::off_thread;
pub use queue::{Backoff, WorkQueue};
pub use signal::Signal;
