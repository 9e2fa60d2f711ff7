//! The current pool: the pool and flow on whose behalf a future is being polled. Like tokio's
//! `Handle::current`, it spares functions deep in a request from passing the pool along; it is set per poll,
//! not per process.

use super::{ComputePool, Entrance, Error, Flow, Handle, Lease, RunnableJobs, Spawned};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
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
    pub(super) flow: Flow,
    /// Counts the jobs of the request, if their number is wanted.
    pub(super) runnable: Option<RunnableJobs>,
    /// Memory of the job being polled; `None` on a reactor.
    pub(super) lease: Option<Arc<Lease>>,
}

/// Returns the pool of the future being polled on this thread, if any. The result may outlive the job that
/// asks, such as in a response body: it does not keep the job's memory.
pub(crate) fn current() -> Option<Current> {
    CURRENT.with_borrow(|current| current.as_ref().map(Current::without_lease))
}

/// The same with the memory of the job being polled.
pub(super) fn current_with_lease() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `work` on the current pool. Runs it in place if there is no current pool, or if the caller is a job
/// of it already.
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
    // Within a job it would wait for memory beside its own, which can deadlock.
    match current_with_lease().filter(|current| current.lease.is_none()) {
        Some(current) => current.run(memory, work).await,
        None => Ok(work.await),
    }
}

/// Inside a job: spawns another job that finishes even if its result is not awaited and that shares this
/// job's memory. Outside a job, returns the work in `Err`.
///
/// # Errors
/// Inner: [`Error::Full`].
pub(crate) fn continue_job<T, F>(work: F) -> Result<Result<Spawned<T>, Error>, F>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let Some(current) = current_with_lease() else {
        return Err(work);
    };
    match (current.pool(), current.lease) {
        (Some(pool), Some(lease)) => Ok(pool.spawn_within(current.flow, current.runnable, lease, work)),
        _ => Err(work),
    }
}

impl Current {
    pub(super) fn new(
        pool: &ComputePool,
        flow: Flow,
        runnable: Option<RunnableJobs>,
        lease: Option<Arc<Lease>>,
    ) -> Self {
        Self {
            pool: Arc::downgrade(&pool.0),
            flow,
            runnable,
            lease,
        }
    }

    fn without_lease(&self) -> Self {
        Self {
            pool: Weak::clone(&self.pool),
            flow: self.flow,
            runnable: self.runnable.clone(),
            lease: None,
        }
    }

    /// The flow that the pool charges.
    #[cfg(test)]
    pub(crate) fn flow(&self) -> Flow {
        self.flow
    }

    /// `None` if the pool has ended.
    pub(super) fn pool(&self) -> Option<ComputePool> {
        self.pool.upgrade().map(ComputePool)
    }

    /// Like [`ComputePool::run`], on behalf of this flow and request.
    ///
    /// # Errors
    /// See there; also [`Error::Interrupted`] if the pool has ended.
    ///
    /// # Panics
    /// Propagates a panic of `work`.
    ///
    /// # Cancel safety
    /// See there.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        memory: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.run_entering(memory, Entrance::Limited, work.boxed()).await
    }

    pub(super) async fn run_entering<T: Send + 'static>(
        &self,
        memory: usize,
        entrance: Entrance,
        work: BoxFuture<'static, T>,
    ) -> Result<T, Error> {
        let pool = self.pool().ok_or(Error::Interrupted)?;
        let of = (self.flow, self.runnable.clone());
        pool.run_counted(of, memory, entrance, work).await
    }

    /// Wraps `inner` so that it is polled on behalf of this flow and request.
    pub(crate) fn within<F>(&self, inner: F) -> Within<F> {
        within(self.without_lease(), inner)
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

impl<F> Within<F> {
    /// The future, and the pool that it is polled with.
    pub(super) fn into_parts(self) -> (F, Option<Current>) {
        (self.inner, self.current)
    }
}

impl ComputePool {
    /// As [`within_request`](Self::within_request), for work that belongs to no request.
    #[cfg(test)]
    pub(crate) fn within<F>(&self, flow: Flow, inner: F) -> Within<F> {
        self.within_request(flow, None, inner)
    }

    /// Wraps `inner` so that this pool is [`current`] while it is polled, on behalf of `flow`. `runnable`
    /// counts the jobs that it starts.
    pub(crate) fn within_request<F>(&self, flow: Flow, runnable: Option<RunnableJobs>, inner: F) -> Within<F> {
        within(Current::new(self, flow, runnable, None), inner)
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
        // Swapped and not set: polls nest, and the outer one must find its own pool again.
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, this.current));
        let _swap = Swap(this.current);
        this.inner.poll(cx)
    }
}
