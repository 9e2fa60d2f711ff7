//! The current pool: the pool and flow on whose behalf a future is being polled. Like tokio's `Handle::current`, it
//! spares functions deep in a request from passing the pool along; it is set per poll, not per process.

use super::{ComputePool, Error, Flow, Handle, Lease, Spawned};
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// A reference to a pool on behalf of one flow. Does not keep the pool alive.
#[derive(Clone)]
pub(crate) struct Current {
    pool: Weak<Handle>,
    flow: Flow,
    /// Memory of the job being polled; `None` on a reactor.
    pub(super) lease: Option<Arc<Lease>>,
}

/// Returns the pool of the future being polled on this thread, if any.
pub(crate) fn current() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `work` on the current pool. Runs it in place if there is no current pool, or if the caller is a job of it
/// already.
///
/// # Errors
/// [`Error`] if the pool refused or stopped it; never in place.
///
/// # Cancel safety
/// See [`ComputePool::run`].
pub(crate) async fn offload<T: Send + 'static>(
    memory: usize,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    match current().and_then(|current| current.pool_outside_job()) {
        Some((pool, flow)) => pool.run(flow, memory, work).await,
        None => Ok(work.await),
    }
}

impl Current {
    pub(super) fn new(pool: &ComputePool, flow: Flow, lease: Option<Arc<Lease>>) -> Self {
        Self {
            pool: Arc::downgrade(&pool.0),
            flow,
            lease,
        }
    }

    /// Returns the pool and the flow; `None` if the pool has ended.
    pub(crate) fn pool(&self) -> Option<(ComputePool, Flow)> {
        Some((ComputePool(self.pool.upgrade()?), self.flow))
    }

    /// As [`pool`](Self::pool), but `None` inside a job of the pool.
    fn pool_outside_job(&self) -> Option<(ComputePool, Flow)> {
        self.pool().filter(|_| self.lease.is_none())
    }

    /// Inside a job: spawns another job that finishes even if its result is not awaited and that shares this job's
    /// memory. Outside a job, returns the work in `Err`.
    ///
    /// # Errors
    /// Inner: [`Error::Full`].
    pub(crate) fn continue_with<T, F>(&self, work: F) -> Result<Result<Spawned<T>, Error>, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        match (self.pool(), &self.lease) {
            (Some((pool, flow)), Some(lease)) => Ok(pool.spawn_within(flow, Arc::clone(lease), work)),
            _ => Err(work),
        }
    }
}

pin_project! {
    /// A future that is polled with a current pool.
    pub struct Within<F> {
        #[pin]
        inner: F,
        current: Option<Current>,
    }
}

impl ComputePool {
    /// Wraps `inner` so that this pool is [`current`] while it is polled, on behalf of `flow`.
    pub(crate) fn within<F>(&self, flow: Flow, inner: F) -> Within<F> {
        Within {
            inner,
            current: Some(Current::new(self, flow, None)),
        }
    }
}

pub(super) fn within<F>(current: Current, inner: F) -> Within<F> {
    Within {
        inner,
        current: Some(current),
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        /// Swaps the values back on drop, even if the poll panics.
        struct Swap<'a>(&'a mut Option<Current>);
        impl Drop for Swap<'_> {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.0));
            }
        }
        let this = self.project();
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, this.current));
        let _swap = Swap(this.current);
        this.inner.poll(cx)
    }
}
