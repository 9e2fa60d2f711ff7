//! [`Derived`]: a value computed from a source that changes, recomputed by the first reader after a change.

use super::compute;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;

/// Estimated memory, in bytes, of the rest of a write that derives a value first.
const MEMORY: usize = 1 << 20;

/// A value that is derived from a source. Reading it costs two atomic loads while the source does not change.
#[derive(Debug)]
pub(crate) struct Derived<T> {
    value: ArcSwap<T>,
    /// How often the source has changed.
    changes: AtomicU64,
    /// How many of the changes are in the value.
    derived: AtomicU64,
    deriving: Mutex<()>,
}

impl<T: Default> Default for Derived<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Derived<T> {
    /// Starts with a value that contains all changes so far.
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: ArcSwap::from_pointee(value),
            changes: AtomicU64::new(0),
            derived: AtomicU64::new(0),
            deriving: Mutex::default(),
        }
    }

    /// Notes that the source has changed. Call it after the change can be read from the source.
    pub(crate) fn invalidate(&self) {
        // Release, with the acquire in `current`: a reader that sees the count can read the change.
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The value, unless the source has changed since it was derived.
    pub(crate) fn current(&self) -> Option<Guard<Arc<T>>> {
        // The value is stored before the count.
        let derived = self.derived.load(Ordering::Acquire);
        (derived == self.changes.load(Ordering::Acquire)).then(|| self.value.load())
    }

    /// The value with every change recorded before the call; `derive` makes it from the previous one. A
    /// reader waits while another derives the value, because that result may lack changes recorded since.
    pub(crate) fn get(&self, derive: impl FnOnce(&T) -> T) -> Arc<T> {
        if let Some(current) = self.current() {
            return Guard::into_inner(current);
        }
        let _one_at_a_time = self.deriving.lock();
        // The thread that was waited for may have included this change.
        if let Some(current) = self.current() {
            return Guard::into_inner(current);
        }
        // Counted before the source is read: a change in between makes the next reader derive again.
        let changes = self.changes.load(Ordering::Acquire);
        let next = Arc::new(derive(&self.value.load()));
        self.value.store(next.clone());
        self.derived.store(changes, Ordering::Release);
        next
    }

    /// [`Self::get`] for a source that clients write, so that deriving may take long: the calling work leaves the
    /// reactor before it derives the value.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn get_off_reactor(&self, derive: impl FnOnce(&T) -> T + Send) -> Arc<T> {
        if self.current().is_none() {
            compute::leave_reactor(MEMORY).await;
        }
        self.get(derive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;
    use futures_util::FutureExt as _;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_value_is_derived_once_per_change() {
        let derived = Derived::new(0);
        assert_eq!(*derived.get(|_| unreachable!("nothing has changed")), 0);
        derived.invalidate();
        derived.invalidate();
        assert!(derived.current().is_none());
        assert_eq!(
            (*derived.get(|n| n + 1), derived.current().as_deref().map(|n| **n)),
            (1, Some(1))
        );
        assert_eq!(*derived.get(|_| unreachable!("nothing has changed")), 1);
    }

    #[test]
    fn a_change_during_derivation_causes_another_one() {
        let derived = Derived::new(0);
        derived.invalidate();
        let first = derived.get(|_| {
            derived.invalidate();
            1
        });
        assert!(*first == 1 && derived.current().is_none());
        assert_eq!(*derived.get(|n| n + 1), 2);
    }

    #[tokio::test]
    async fn work_leaves_the_reactor_only_to_derive() {
        let here = || std::thread::current().id();
        let config = compute::Config::default();
        let pool = compute::ComputePool::start(config, Telemetry::new().compute.clone()).unwrap();
        let derived = Arc::new(Derived::new(here()));
        for changed in [true, false] {
            if changed {
                derived.invalidate();
            }
            let of = derived.clone();
            let work = async move {
                of.get_off_reactor(|_| here()).await;
                here()
            };
            let moved = pool.within(pool.flow("caller"), async { compute::movable(work.boxed()).await });
            assert_eq!(moved.await.unwrap() != here(), changed);
            assert_ne!(*derived.get(|_| unreachable!("it is derived")), here());
        }
    }

    /// A reader that finds another deriving an older state must not get the value from before both.
    #[test]
    fn a_reader_never_gets_a_value_from_before_its_change() {
        let (derived, source) = (Derived::new(0), AtomicU32::new(0));
        let (deriving, changed) = (Barrier::new(2), Barrier::new(2));
        derived.invalidate();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                derived.get(|_| {
                    let read = source.load(Ordering::SeqCst);
                    deriving.wait();
                    changed.wait();
                    read
                })
            });
            deriving.wait();
            source.store(1, Ordering::SeqCst);
            derived.invalidate();
            assert!(derived.current().is_none());
            changed.wait();
            assert_eq!(*derived.get(|_| source.load(Ordering::SeqCst)), 1);
        });
    }
}
