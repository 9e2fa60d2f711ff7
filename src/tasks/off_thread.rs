//! Moves long work off a reactor: to the compute pool, or to a blocking thread outside of it.

use super::compute;

/// Runs `work` off the reactor: on the caller's compute pool where a request is being served (in place where
/// that is a job of the pool already), and on a blocking thread for the server's own tasks. `memory` is an
/// estimate, in bytes, of what `work` allocates; the pool counts it against the caller.
///
/// Returns `None` where the work was not finished: the pool is full, the work took too long, or the process
/// is ending.
///
/// # Panics
/// A panic of `work` is resumed in the caller.
///
/// # Cancel safety
/// When dropped, work on the pool stops at its next checkpoint; work on a blocking thread continues to its
/// end.
pub(crate) async fn off_thread<T: Send + 'static>(
    memory: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if compute::current().is_some() {
        return compute::offload(memory, async move { work() }).await.ok();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        // Cancelled: the runtime is shutting down.
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::compute::{ComputePool, Config};
    use crate::telemetry::Telemetry;

    fn here() -> std::thread::ThreadId {
        std::thread::current().id()
    }

    #[tokio::test]
    async fn work_of_the_server_runs_on_another_thread() {
        assert_ne!(off_thread(0, here).await, Some(here()));
    }

    #[tokio::test]
    async fn work_of_a_request_runs_on_the_pool_and_in_place_within_a_job() {
        let pool = ComputePool::start(Config::default(), Telemetry::new().compute.clone()).unwrap();
        let flow = pool.flow("caller");
        let nested = pool.within(flow, async move {
            let current = compute::current().expect("a request has a pool");
            current.run(0, async { (here(), off_thread(0, here).await) }).await
        });
        let (job, inner) = nested.await.unwrap();
        assert_ne!(job, here());
        assert_eq!(inner, Some(job));
    }
}
