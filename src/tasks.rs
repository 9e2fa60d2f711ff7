//! Execution of asynchronous work beyond a single call: owned task groups, the compute pool, one-shot
//! signals, work queues, backoff, shares of limited places, yields of long loops, and write coalescing for
//! connections. The runtime itself is created in `main.rs`.

mod backoff;
pub(crate) mod coalesce;
pub(crate) mod compute;
mod derived;
mod group;
mod off_thread;
mod queue;
pub(crate) mod shares;
mod shrink;
mod signal;
mod slice;
mod yield_counter;

pub(crate) use backoff::Backoff;
pub(crate) use derived::Derived;
pub use group::{Stragglers, TaskGroup};
pub(crate) use off_thread::off_thread;
pub(crate) use queue::WorkQueue;
pub(crate) use shrink::shrink;
pub use signal::Signal;
pub use slice::shorten_time_slice;
pub(crate) use yield_counter::YieldCounter;
