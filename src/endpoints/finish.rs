//! Runs mutations in owned tasks, so that dropping the request's future only stops the wait, never the write.
//!
//! Entry points: [`finish`], and [`to_the_end`] without a time limit (upstream:
//! `endpoints/handlers/finisher`).

use super::offload;
use crate::apimachinery::status::{Result, Status};
use crate::tasks::compute;
use crate::telemetry::requests::LateResults;
use crate::telemetry::{request_parts, spans};
use futures_util::FutureExt as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest time a client waits for a create, update, patch or delete (upstream:
/// `requestTimeoutUpperBound`). Not a round number, so that it is recognizable among other timeouts.
const BOUND: Duration = Duration::from_secs(34);

/// Sets the flag when dropped, that is, once the client no longer waits.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Relaxed: the flag guards no other data, and it does not matter how a result that arrives at the same moment
        // is counted.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` in a task of its own and waits for its result. If the client has stopped waiting by then, the
/// result is counted in `late`.
///
/// # Errors
/// The errors of `work`; 504 after 34 seconds, in which case the work may still succeed.
///
/// # Cancel safety
/// Cancel safe: the work continues.
pub(crate) async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
    late: Option<LateResults>,
) -> Result<T> {
    match tokio::time::timeout(BOUND, to_the_end(work, late)).await {
        Ok(done) => done,
        Err(_) => Err(offload::offload_error_status(compute::Error::Interrupted)),
    }
}

/// [`finish`] without a time limit, for deletecollection.
///
/// # Errors
/// The errors of `work`.
///
/// # Cancel safety
/// Cancel safe: the work continues.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
    late: Option<LateResults>,
) -> Result<T> {
    // Held across the await below: dropping this future is what marks the client as gone.
    let waiting = Waiting(Arc::default());
    let alone = waiting.0.clone();
    let work = async move {
        let outcome = work.await;
        if let Some(late) = late.filter(|_| alone.load(Ordering::Relaxed)) {
            late.count(outcome.is_ok());
        }
        outcome
    };
    // Boxed because tokio's task code is instantiated per future type and scheduler; one type keeps the
    // binary small.
    let mut work = request_parts::carried(spans::carried(work.boxed()));
    // Requests decoded on the compute pool continue there.
    match compute::continue_job(work) {
        // The new job shares the memory of this one, so the write is not admitted a second time.
        Ok(Ok(written)) => return written.await.unwrap_or_else(|e| Err(offload::offload_error_status(e))),
        Ok(Err(e)) => return Err(offload::offload_error_status(e)),
        Err(given_back) => work = given_back,
    }
    // The task may find out late that its work is expensive; `movable` lets it change to the pool then.
    match tokio::spawn(compute::movable(work)).await {
        Ok(done) => done.unwrap_or_else(|e| Err(offload::offload_error_status(e))),
        // Propagate a panic into the request, where the panic filter logs it and responds.
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(e) => Err(Status::internal(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn work_continues_after_the_client_leaves() {
        let telemetry = Telemetry::new();
        let (start, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (s, d) = (start.clone(), done.clone());
        let work = async move {
            s.notified().await;
            d.notify_one();
            Ok(())
        };
        let waiting = tokio::spawn(finish(work, Some(telemetry.requests.late())));
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        start.notify_one();
        done.notified().await;
        finish(async { Ok(()) }, Some(telemetry.requests.late())).await.unwrap();
        let text = String::from_utf8(telemetry.text()).unwrap();
        for (status, times) in [("ok", 1), ("error", 0)] {
            let line = format!(
                "apiserver_request_post_timeout_total{{source=\"rest-handler\",status=\"{status}\"}} {times}\n"
            );
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
