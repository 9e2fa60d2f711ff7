//! Work that takes long, out of the way of who waits for it.
//!
//! All requests of an HTTP/2 connection share one task, so what one of them computes the others wait for. Work of more
//! than some tens of microseconds moves to a task of its own, and ends with the request: dropped, it is aborted.
//! `request::Body::aside` is the same for bodies.

use futures_util::FutureExt as _;
use std::future::Future;
use tokio::task::JoinSet;

/// Waits for `work`, which runs in a task of its own. A panic in it is one of the caller's.
///
/// # Cancel safety
/// Dropped, it aborts the work.
pub async fn aside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    // Boxed, because the runtime's code for a task is made once per type of task and scheduler.
    task.spawn(work.boxed());
    match task.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(e)) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        // The runtime is ending, and its tasks are not polled any more.
        _ => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::AssertUnwindSafe;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_aside_ends_with_who_waits_for_it() {
        assert_eq!(aside(async { 7 }).await, 7);
        let (tied, gone) = oneshot::channel::<()>();
        let mut waiting = Box::pin(aside(async move {
            let _tied = tied;
            std::future::pending::<()>().await;
        }));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert!(gone.await.is_err());
    }

    #[tokio::test]
    async fn a_panic_aside_is_one_of_who_waits() {
        let panics = aside::<()>(async { panic!("a test's own panic") });
        assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
    }
}
