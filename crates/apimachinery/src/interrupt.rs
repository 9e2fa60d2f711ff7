//! Cooperative interruption of long computations.
//!
//! A decoder or validator whose work depends on client-chosen sizes cannot be preempted: it occupies its
//! thread until it returns. Such loops call [`checkpoint`]. If the computation runs under a [`Limit`] that is
//! exceeded (its time is up, or the caller no longer waits for the result), the checkpoint unwinds the stack
//! to [`run`], which returns [`Interrupted`].
//!
//! Unwinding lets pure functions keep their signatures instead of threading an error through every caller;
//! rust-analyzer's `salsa::Cancelled` makes the same choice. It is sound because checkpoints appear in pure
//! computation only: never while a lock is held, and never between a storage write and its follow-up work.
//!
//! Outside [`run`], for instance in a unit test or on a dedicated thread, a checkpoint does nothing.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Decides whether a running computation should stop. Evaluated every 256 checkpoints.
pub trait Limit: 'static {
    /// True once the computation should stop.
    fn is_exceeded(&self) -> bool;

    /// Yields to other threads if it is time. Never stops the computation; only [`is_exceeded`](Self::is_exceeded)
    /// decides that.
    fn pause(&self) {}
}

/// A computation was stopped at a checkpoint and has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Checkpoints between two evaluations of the limit, which usually reads the clock.
const INTERVAL: u32 = 256;

thread_local! {
    static COUNTDOWN: Cell<u32> = const { Cell::new(INTERVAL) };
    static LIMIT: RefCell<Option<Rc<dyn Limit>>> = const { RefCell::new(None) };
}

/// Unwinds to [`run`] if the enclosing computation should stop. Costs about a nanosecond: cheap enough for a
/// loop over elements, too expensive for a loop over bytes.
#[inline]
pub fn checkpoint() {
    count_down(check);
}

/// As [`checkpoint`], but never unwinds: for loops that must not be interrupted, since a lock may be held or
/// a write may be half done. A thread of low priority otherwise runs to the end of its time slice, whoever
/// waits for its core.
#[inline]
pub fn pause() {
    count_down(check_pause);
}

/// Calls `due` every [`INTERVAL`] times.
#[inline]
fn count_down(due: impl FnOnce()) {
    // Thread-local, so no synchronisation: a nested computation shares the countdown, which only shifts the next
    // evaluation.
    COUNTDOWN.with(|left| match left.get() {
        0 => {
            // Reset before `due`, which may unwind and must leave the countdown usable.
            left.set(INTERVAL);
            due();
        }
        n => left.set(n - 1),
    });
}

/// A checkpoint before work that calls none itself and takes longer than some microseconds: evaluates the
/// limit at once instead of every 256th time. For loops over chunks of bytes.
pub fn checkpoint_now() {
    // Restarts the interval: the limit has just been evaluated.
    COUNTDOWN.set(INTERVAL);
    check();
}

/// Compares by `compare`, and [pauses](pause) if it is time: sorting by keys that a client has sent may take
/// tens of milliseconds.
#[inline]
pub fn pausing<T>(compare: impl Fn(&T, &T) -> Ordering) -> impl Fn(&T, &T) -> Ordering {
    move |a, b| {
        pause();
        compare(a, b)
    }
}

#[cold]
fn check_pause() {
    // Cloned so that `pause` may run code that passes checkpoints itself.
    if let Some(limit) = LIMIT.with_borrow(Clone::clone) {
        limit.pause();
    }
}

#[cold]
fn check() {
    // Cloned so that the `RefCell` is not borrowed while the stack unwinds.
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
/// [`Interrupted`] if a checkpoint inside `work` found the limit exceeded.
///
/// # Panics
/// Propagates a panic of `work`.
pub fn run<T>(limit: Rc<dyn Limit>, work: impl FnOnce() -> T) -> Result<T, Interrupted> {
    /// Restores the outer limit on every exit from this scope.
    struct Restore(Option<Rc<dyn Limit>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LIMIT.set(self.0.take());
        }
    }
    // Nested limits replace each other: work inside is bounded by the innermost one only.
    let restore = Restore(LIMIT.replace(Some(limit)));
    // Safe to assert: an interrupted computation has no result, so whatever it left half done is dropped unseen.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    // Before the payload is examined: `resume_unwind` must not leave this limit installed.
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
    fn exceeded_limit_stops_work_at_a_checkpoint() {
        let endless = || -> () {
            loop {
                checkpoint();
            }
        };
        assert_eq!(run(after(3), endless), Err(Interrupted));
        assert_eq!(
            run(after(0), || 7),
            Ok(7),
            "work without checkpoints is never interrupted"
        );
    }

    struct Paused(Rc<Cell<u32>>);

    impl Limit for Paused {
        fn is_exceeded(&self) -> bool {
            true
        }
        fn pause(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// How often `work` pauses for other threads.
    fn pauses(work: impl FnOnce()) -> u32 {
        let paused = Rc::new(Cell::new(0));
        assert_eq!(run(Rc::new(Paused(paused.clone())), work), Ok(()));
        paused.get()
    }

    #[test]
    fn pause_never_unwinds() {
        assert!((2..=3).contains(&pauses(|| (0..INTERVAL * 3).for_each(|_| pause()))));
    }

    #[test]
    fn sorting_copying_and_dropping_a_large_object_pause() {
        let members = (0..INTERVAL * 4).map(|i| (format!("{:x}", i.reverse_bits()), i));
        let mut object = crate::value::Map::new();
        assert!(pauses(|| object = members.collect()) >= 4);
        let mut copy = crate::value::Map::new();
        assert!(pauses(|| copy = object.clone()) >= 3);
        assert!(pauses(|| drop(object)) >= 3);
        assert_eq!(copy.len(), 4 * INTERVAL as usize);
    }

    #[test]
    fn checkpoint_now_evaluates_the_limit_at_once() {
        assert_eq!(run(after(0), checkpoint_now), Err(Interrupted));
        let long = "a".repeat(200 << 10);
        let read = || crate::codec::yaml::decode(long.as_bytes());
        assert_eq!(run(after(2), read), Err(Interrupted), "a chunk is 64 KiB");
    }

    #[test]
    fn checkpoint_without_limit_does_nothing() {
        (0..INTERVAL * 3).for_each(|_| checkpoint());
        assert_eq!(run(after(0), || ()), Ok(()));
        (0..INTERVAL * 3).for_each(|_| checkpoint());
    }

    #[test]
    fn inner_limit_applies_only_to_inner_work() {
        let outer = run(after(u32::MAX), || {
            let inner = run(after(0), || (0..INTERVAL * 2).for_each(|_| checkpoint()));
            (0..INTERVAL * 2).for_each(|_| checkpoint());
            inner
        });
        assert_eq!(outer, Ok(Err(Interrupted)));
    }

    #[test]
    fn panic_propagates_through_run() {
        let panics = catch_unwind(|| run(after(0), || panic!("a test's own panic")));
        assert!(panics.is_err());
    }
}
