//! Execution of asynchronous work beyond a single call: owned task groups, the compute pool, one-shot signals, work
//! queues, backoff, and write coalescing for connections. The runtime itself is created in `main.rs`.

mod backoff;
pub mod coalesce;
pub mod compute;
mod derived;
mod group;
mod off_thread;
mod queue;
mod signal;

pub use backoff::{Backoff, Delays};
pub use derived::Derived;
pub use group::{Stragglers, TaskGroup};
pub use off_thread::off_thread;
pub use queue::WorkQueue;
pub use signal::Signal;
