//! [`retry`]: the loop around calls to webhooks and reviews, as upstream's
//! `util/webhook.WithExponentialBackoff`.

use crate::tasks::Backoff;
use std::future::Future;
use std::time::Duration;

/// Maximum number of attempts.
const MAX_ATTEMPTS: u32 = 5;

/// Whether and when a failed call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// A retry would fail the same way.
    No,
    /// After the caller's backoff.
    Backoff,
    /// The server asked for this delay.
    After(Duration),
}

/// An error that is classified by whether a retry may help.
pub(crate) trait Retryable {
    /// See [`Retry`].
    fn retry(&self) -> Retry;
}

/// Repeats a call until it succeeds or fails for good, at most five times.
///
/// # Errors
/// That of the last attempt.
///
/// # Cancel safety
/// As that of one attempt.
pub(crate) async fn retry<T, E: Retryable, F>(backoff: Backoff, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut delays = backoff.delays();
    for _ in 1..MAX_ATTEMPTS {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        // Drawn even if the server asks for a delay of its own, so that later ones have grown.
        let own = delays.next_delay();
        match error.retry() {
            Retry::No => return Err(error),
            Retry::Backoff => tokio::time::sleep(own).await,
            Retry::After(delay) => tokio::time::sleep(delay).await,
        }
    }
    // Outside the loop: nothing is waited for after the last attempt.
    attempt().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    impl Retryable for Retry {
        fn retry(&self) -> Retry {
            *self
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_retried_as_their_errors_indicate() {
        let start = tokio::time::Instant::now();
        let calls = Cell::new(0);
        let run = |errors: Vec<Retry>| {
            calls.set(0);
            let calls = &calls;
            retry(Backoff::WEBHOOK, move || {
                let outcome = errors.get(calls.get()).copied().map_or(Ok("done"), Err);
                calls.set(calls.get() + 1);
                async move { outcome }
            })
        };
        assert_eq!(run(vec![Retry::Backoff; 4]).await, Ok("done"));
        let took = start.elapsed().as_millis();
        assert!(
            (4062..4880).contains(&took),
            "500 + 750 + 1125 + 1687 ms and jitter: {took}"
        );
        assert_eq!(run(vec![Retry::Backoff; 9]).await, Err(Retry::Backoff));
        assert_eq!(calls.get(), 5);
        assert_eq!(run(vec![Retry::Backoff, Retry::No]).await, Err(Retry::No));
        assert_eq!(calls.get(), 2);
        let start = tokio::time::Instant::now();
        assert_eq!(run(vec![Retry::After(Duration::from_secs(7))]).await, Ok("done"));
        assert_eq!(start.elapsed().as_secs(), 7);
    }
}
