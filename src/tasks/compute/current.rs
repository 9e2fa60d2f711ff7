//! The pool that a request, or a job, belongs to, for whoever is deep inside of it: as tokio's `Handle::current`, a
//! property of what is being polled and not of the process.

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

/// A pool, seen by one flow. It does not keep the pool alive.
#[derive(Clone)]
pub struct Current {
    pool: Weak<Handle>,
    flow: Flow,
    /// The memory of the job that is being polled; `None` on a reactor.
    pub(super) lease: Option<Arc<Lease>>,
}

/// The pool of what is being polled on this thread; `None` where there is none.
pub fn current() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `work` on the current pool. Where there is none, and where this is a job already, it runs in place.
///
/// # Errors
/// [`Error`].
///
/// # Cancel safety
/// As [`ComputePool::run`].
pub async fn offload<T: Send + 'static>(
    memory: usize,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    match current().and_then(|current| current.beside()) {
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

    /// The pool and the flow; `None` where the pool has ended.
    pub fn pool(&self) -> Option<(ComputePool, Flow)> {
        Some((ComputePool(self.pool.upgrade()?), self.flow))
    }

    /// The same where this is a reactor, and not a job of the pool.
    fn beside(&self) -> Option<(ComputePool, Flow)> {
        self.pool().filter(|_| self.lease.is_none())
    }

    /// Where this is a job: begins another that is finished whether or not somebody waits for it. It goes on with the
    /// memory of this one. `None`: this is no job, and the work is given back.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn continue_with<T, F>(&self, work: F) -> Result<Result<Spawned<T>, Error>, F>
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
    /// A future whose polls have a current pool.
    pub struct Within<F> {
        #[pin]
        inner: F,
        current: Option<Current>,
    }
}

impl ComputePool {
    /// `inner`, for which this pool is the [`current`] one, on behalf of `flow`.
    pub fn within<F>(&self, flow: Flow, inner: F) -> Within<F> {
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
        /// Moves the value back where it was, also when the poll panics.
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
