//! Runs a mutation to its end even if the client has gone: dropping the request's future drops only the wait.

use crate::apimachinery::status::{Result, Status};
use futures_util::FutureExt as _;
use std::future::Future;
use std::time::Duration;

/// How long a client waits for create, update, patch and delete at most.
const BOUND: Duration = Duration::from_secs(34);

/// Waits for `work`, which runs in a task of its own and ends by itself.
///
/// # Errors
/// What `work` fails with; 504 after 34 seconds, when the work may still succeed.
///
/// # Cancel safety
/// Cancel safe: the work goes on.
pub async fn finish<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::time::timeout(BOUND, to_the_end(work)).await {
        Ok(done) => done,
        Err(_) => {
            let mut s = Status::new(
                504,
                "Timeout",
                "Timeout: request did not complete within requested timeout - context deadline exceeded",
            );
            s.details_mut();
            Err(s)
        }
    }
}

/// [`finish`] without a bound: deletecollection takes as long as it takes.
///
/// # Errors
/// What `work` fails with.
///
/// # Cancel safety
/// Cancel safe: the work goes on.
pub async fn to_the_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    // Boxed, because the runtime's code for a task is made once per type of task and scheduler.
    match tokio::spawn(work.boxed()).await {
        Ok(done) => done,
        // A panic goes on in the request, whose panic filter answers and logs it.
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(e) => Err(Status::internal(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn work_goes_on_when_nobody_waits_any_more() {
        let (start, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (s, d) = (start.clone(), done.clone());
        let waiting = tokio::spawn(finish(async move {
            s.notified().await;
            d.notify_one();
            Ok(())
        }));
        tokio::task::yield_now().await;
        waiting.abort();
        start.notify_one();
        done.notified().await;
    }
}
