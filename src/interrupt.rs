//! Stops long computations from the inside.
//!
//! A decoder or validator that follows a client's sizes cannot be preempted: it holds its thread until it returns. Such
//! loops call [`checkpoint`]. Where the computation runs under a [`Limit`] that says it should stop (its time is used up,
//! or nobody waits for the result any more), the checkpoint unwinds the stack to [`run`], which reports [`Interrupted`].
//!
//! Unwinding, rather than an error that every function between would have to return, keeps pure functions pure: the same
//! choice as rust-analyzer's `salsa::Cancelled`. It is sound because checkpoints stand in pure computation only: never
//! while a lock is held and never between a write to storage and what belongs to it.
//!
//! Outside of [`run`], for instance in a unit test or on a thread that computes for itself, a checkpoint does nothing.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Decides whether a running computation should stop. Asked every 256 checkpoints.
pub trait Limit: 'static {
    /// True once the computation should stop.
    fn is_exceeded(&self) -> bool;
}

/// The computation was stopped at a checkpoint; its result does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// How many checkpoints pass between two looks at the limit: looking costs a clock reading.
const INTERVAL: u32 = 256;

thread_local! {
    static COUNTDOWN: Cell<u32> = const { Cell::new(INTERVAL) };
    static LIMIT: RefCell<Option<Rc<dyn Limit>>> = const { RefCell::new(None) };
}

/// Unwinds to [`run`] if the computation around it should stop. Costs about a nanosecond, so that it may stand in a loop
/// over elements; it should not stand in a loop over bytes.
#[inline]
pub fn checkpoint() {
    COUNTDOWN.with(|left| match left.get() {
        0 => {
            left.set(INTERVAL);
            check();
        }
        n => left.set(n - 1),
    });
}

#[cold]
fn check() {
    // Cloned, so that nothing is borrowed while the stack unwinds.
    let limit = LIMIT.with_borrow(Clone::clone);
    // A second unwind on top of a first would abort the process.
    if limit.is_some_and(|limit| limit.is_exceeded()) && !std::thread::panicking() {
        // Not `panic!`: the panic hook would log a normal event as a defect.
        resume_unwind(Box::new(Interrupted));
    }
}

/// Runs `work` on this thread under `limit`.
///
/// # Errors
/// [`Interrupted`], where a checkpoint in it found the limit exceeded.
///
/// # Panics
/// A panic of `work` goes on.
pub fn run<T>(limit: Rc<dyn Limit>, work: impl FnOnce() -> T) -> Result<T, Interrupted> {
    /// Puts the limit around this one back, however `work` ends.
    struct Restore(Option<Rc<dyn Limit>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LIMIT.set(self.0.take());
        }
    }
    let restore = Restore(LIMIT.replace(Some(limit)));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    drop(restore);
    outcome.map_err(|payload| match payload.downcast::<Interrupted>() {
        Ok(interrupted) => *interrupted,
        Err(panic) => resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct After(Cell<u32>);

    impl Limit for After {
        fn is_exceeded(&self) -> bool {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            left == 0
        }
    }

    fn after(looks: u32) -> Rc<dyn Limit> {
        Rc::new(After(Cell::new(looks)))
    }

    #[test]
    fn a_computation_stops_at_a_checkpoint_once_its_limit_is_exceeded() {
        let endless = || -> () {
            loop {
                checkpoint();
            }
        };
        assert_eq!(run(after(3), endless), Err(Interrupted));
        assert_eq!(run(after(0), || 7), Ok(7), "no checkpoint, no interruption");
    }

    #[test]
    fn checkpoints_do_nothing_without_a_limit() {
        (0..INTERVAL * 3).for_each(|_| checkpoint());
        assert_eq!(run(after(0), || ()), Ok(()));
        (0..INTERVAL * 3).for_each(|_| checkpoint());
    }

    #[test]
    fn an_inner_limit_ends_with_its_own_computation() {
        let outer = run(after(u32::MAX), || {
            let inner = run(after(0), || (0..INTERVAL * 2).for_each(|_| checkpoint()));
            (0..INTERVAL * 2).for_each(|_| checkpoint());
            inner
        });
        assert_eq!(outer, Ok(Err(Interrupted)));
    }

    #[test]
    fn a_panic_is_not_an_interruption() {
        let panics = catch_unwind(|| run(after(0), || panic!("a test's own panic")));
        assert!(panics.is_err());
    }
}
