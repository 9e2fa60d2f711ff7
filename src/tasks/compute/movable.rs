//! Work that starts on a reactor and moves to the compute pool once it turns out to be expensive.
//!
//! Whether a request is small is decided when it arrives, by its body and the object that it addresses. What
//! it costs can also depend on other objects: the ServiceAccount of a Pod, the parameters of a policy, what a
//! webhook or default made of the object. Code that is about to process such an object awaits
//! [`leave_reactor`]; everything that [`movable`] wraps, up to its end, then runs as a job of the pool.

use super::current::{Within, current_with_lease};
use super::{Entrance, Error};
use crate::apimachinery::value::Value;
use futures_util::future::BoxFuture;
use std::cell::Cell;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Stored bytes up to which an object is processed on a reactor: decoding them takes less than 200 µs.
const HEAVY: usize = 32 << 10;
/// Objects of a cache up to which a list of some of them is made on a reactor, at about 50 ns each.
const MANY_OBJECTS: usize = 4096;
/// Estimated memory per byte of a stored object: the tree, its encoding, and a copy to compare with.
pub(crate) const MEMORY_PER_STORED_BYTE: usize = 8;
/// Estimated memory, in bytes, for the rest of a write whose object became large.
const MEMORY_OF_LARGE_OBJECT: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not within [`movable`], or on the pool.
    Fixed,
    /// On a reactor, within [`movable`].
    Reactor,
    /// The same, but what is being polled asked to leave; with its estimate of memory in bytes.
    Leaving(usize),
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Fixed) };
}

/// True if processing this many stored bytes would block a reactor thread for too long.
pub(crate) fn is_heavy(stored: usize) -> bool {
    stored > HEAVY
}

/// True if encoding the object would block a reactor thread for too long.
pub(crate) fn is_large(object: &Value) -> bool {
    object.is_larger_than(HEAVY)
}

/// Wraps `work` so that it can [leave the reactor](leave_reactor). Does nothing where there is no current pool,
/// and within a job of it.
///
/// Moving is not subject to the limits on the number of jobs: the work has begun, and must not be dropped half
/// done.
///
/// # Errors
/// [`Error::Interrupted`] if the pool stopped the work.
pub(crate) fn movable<T: Send + 'static>(work: BoxFuture<'static, T>) -> Movable<T> {
    match current_with_lease() {
        // Outside of a pool, or in a job: there is nowhere to move to.
        Some(current) if current.lease.is_none() => Movable::Reactor(current.within(work)),
        _ => Movable::Moved(Box::pin(async move { Ok(work.await) })),
    }
}

/// Work that [`movable`] wraps, by the place where it runs.
pub(crate) enum Movable<T> {
    /// On a reactor, from which the pool is current.
    Reactor(Within<BoxFuture<'static, T>>),
    /// A job of the pool, or work that does not move.
    Moved(BoxFuture<'static, Result<T, Error>>),
}

impl<T: Send + 'static> Future for Movable<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        /// Restores the place on drop, even if the poll panics.
        struct Restore(Place);
        impl Drop for Restore {
            fn drop(&mut self) {
                PLACE.set(self.0);
            }
        }
        if let Self::Reactor(work) = &mut *self {
            // The place is per poll: another future polled on this thread meanwhile must not see it.
            let outer = Restore(PLACE.replace(Place::Reactor));
            let polled = Pin::new(work).poll(cx);
            let place = PLACE.get();
            drop(outer);
            match (polled, place) {
                (Poll::Ready(done), _) => return Poll::Ready(Ok(done)),
                // A future that is ready has no rest to move.
                (Poll::Pending, Place::Leaving(memory)) => {
                    // The placeholder is never polled; it only lets the work be moved out of `self`.
                    *self = std::mem::replace(&mut *self, Self::Moved(Box::pin(pending()))).moved(memory);
                }
                (Poll::Pending, _) => return Poll::Pending,
            }
        }
        match &mut *self {
            Self::Moved(job) => job.as_mut().poll(cx),
            Self::Reactor(..) => unreachable!("the work has left"),
        }
    }
}

impl<T: Send + 'static> Movable<T> {
    /// The same work as a job of the pool, which is then current as within every job: what the work offloads runs
    /// in place, and does not wait for memory beside that of the job.
    fn moved(self, memory: usize) -> Self {
        match self {
            Self::Reactor(within) => {
                let (work, current) = within.into_parts();
                Self::Moved(Box::pin(async move {
                    let current = current.ok_or(Error::Interrupted)?;
                    // Without `movable` around it: in the job, `leave_reactor` finds the place `Fixed` and
                    // does nothing.
                    current.run_entering(memory, Entrance::Unlimited, work).await
                }))
            }
            moved @ Self::Moved(_) => moved,
        }
    }
}

/// Continues the calling work on the compute pool, if [`movable`] wraps it and it is not there yet. `memory` is
/// an estimate, in bytes, of what the rest of it allocates.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn leave_reactor(memory: usize) {
    LeaveReactor { memory, asked: false }.await;
}

/// [`leave_reactor`] if that many stored bytes, about to be decoded, are too many for a reactor.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn leave_reactor_to_decode(stored: usize) {
    if is_heavy(stored) {
        leave_reactor(stored.saturating_mul(MEMORY_PER_STORED_BYTE)).await;
    }
}

/// [`leave_reactor`] if a cache of that many objects, about to be listed, has too many for a reactor.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn leave_reactor_to_list(objects: usize) {
    if objects > MANY_OBJECTS {
        // A list refers to the objects of the cache.
        leave_reactor(objects.saturating_mul(size_of::<usize>())).await;
    }
}

/// [`leave_reactor`] if `object`, about to be validated and encoded, is too large for a reactor.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn leave_reactor_with(object: &Value) {
    // Measuring walks the object, so the cheap test comes first.
    if PLACE.get() != Place::Fixed && is_large(object) {
        leave_reactor(MEMORY_OF_LARGE_OBJECT).await;
    }
}

struct LeaveReactor {
    memory: usize,
    asked: bool,
}

impl Future for LeaveReactor {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Asked once: the next poll is on the pool, or the work was not movable.
        if !self.asked && PLACE.get() != Place::Fixed {
            self.asked = true;
            PLACE.set(Place::Leaving(self.memory));
            // Combinators between this and `Movable` poll only what was woken.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::compute::{self, ComputePool, Config};
    use crate::telemetry::Telemetry;
    use futures_util::FutureExt as _;
    use futures_util::stream::{FuturesUnordered, StreamExt as _};

    fn here() -> std::thread::ThreadId {
        std::thread::current().id()
    }

    fn pool(jobs: usize) -> ComputePool {
        let config = Config {
            jobs,
            ..Config::default()
        };
        ComputePool::start(config, Telemetry::new().compute.clone()).unwrap()
    }

    #[tokio::test]
    async fn work_moves_on_request_and_stays_in_the_pool() {
        let pool = pool(16);
        let work = async {
            let before = here();
            leave_reactor(0).await;
            let after = here();
            leave_reactor(0).await;
            tokio::task::yield_now().await;
            (before, after, here() != before)
        };
        let wrapped = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
        let (before, after, stayed) = wrapped.await.unwrap();
        assert_eq!(before, here());
        assert_ne!(after, here());
        assert!(stayed);
        assert!(PLACE.get() == Place::Fixed);
    }

    #[tokio::test]
    async fn work_stays_on_the_reactor_unless_it_requests_to_move() {
        let pool = pool(16);
        let work = async {
            leave_reactor_to_decode(HEAVY).await;
            here()
        };
        let wrapped = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
        assert_eq!(wrapped.await, Ok(here()));
    }

    #[tokio::test]
    async fn work_moves_when_its_object_is_large() {
        let pool = pool(16);
        let place_with = |bytes: usize| {
            let work = async move {
                leave_reactor_with(&crate::json!({"data": "x".repeat(bytes)})).await;
                here()
            };
            pool.within(pool.flow("caller"), async { movable(work.boxed()).await })
        };
        assert_eq!(place_with(HEAVY / 2).await, Ok(here()));
        assert_ne!(place_with(2 * HEAVY).await.unwrap(), here());
    }

    #[tokio::test]
    async fn work_moves_when_it_lists_many_objects() {
        let pool = pool(16);
        let place_with = |objects: usize| {
            let work = async move {
                leave_reactor_to_list(objects).await;
                here()
            };
            pool.within(pool.flow("caller"), async { movable(work.boxed()).await })
        };
        assert_eq!(place_with(MANY_OBJECTS).await, Ok(here()));
        assert_ne!(place_with(MANY_OBJECTS + 1).await.unwrap(), here());
    }

    #[tokio::test]
    async fn work_moves_from_within_combinators() {
        let pool = pool(16);
        let work = async {
            let asks = |n: u32| async move {
                leave_reactor_to_decode(HEAVY + 1).await;
                n
            };
            let all: FuturesUnordered<_> = (0..3).map(asks).collect();
            (all.fold(0, |sum, n| async move { sum + n }).await, here())
        };
        let wrapped = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
        let (sum, place) = wrapped.await.unwrap();
        assert_eq!(sum, 3);
        assert_ne!(place, here());
    }

    #[tokio::test]
    async fn work_that_has_begun_is_not_refused() {
        let pool = pool(0);
        let work = async {
            leave_reactor(0).await;
            here()
        };
        let wrapped = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
        assert_ne!(wrapped.await.unwrap(), here());
    }

    #[tokio::test]
    async fn work_that_has_moved_offloads_in_place() {
        let pool = pool(0);
        let work = async {
            leave_reactor(0).await;
            (compute::offload(0, async { here() }).await, here())
        };
        let wrapped = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
        let (inner, job) = wrapped.await.unwrap();
        assert_eq!(inner, Ok(job));
    }

    #[tokio::test]
    async fn without_a_pool_work_stays_where_it_is() {
        let work = async {
            leave_reactor(0).await;
            here()
        };
        assert_eq!(movable(work.boxed()).await, Ok(here()));
    }
}
