//! Runs part of a verb on the compute pool, and the Status if the pool refuses.

use crate::apimachinery::status::{Result, Status};
use crate::tasks::compute::{self, Error};
pub(super) use compute::{is_heavy, is_large};
use std::future::Future;

/// Runs part of a verb on the current pool, or in place if there is none.
pub(super) async fn run_offloaded<T: Send + 'static>(
    memory: usize,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    compute::offload(memory, work)
        .await
        .unwrap_or_else(|e| Err(offload_error_status(e)))
}

/// The Status for a computation that was rejected or interrupted.
pub(super) fn offload_error_status(error: Error) -> Status {
    match error {
        // The client may retry: nothing has been done yet.
        Error::Full => Status::too_many_requests("too many requests, please try again later", 1),
        // As upstream reports a request whose context has expired.
        Error::Interrupted => {
            let mut s = Status::new(
                504,
                "Timeout",
                "Timeout: request did not complete within requested timeout - context deadline exceeded",
            );
            s.details_mut();
            s
        }
    }
}
