//! A circuit breaker for webhooks that do not answer.
//!
//! Only slow failures count: a refused connection costs nothing, and the next call finds out at once that the
//! webhook is back, as with upstream.
//!
//! ```text
//! closed ── 3 slow failures in a row ──► open: calls fail at once, with the last failure
//!    ▲                                     │ after 1 s, doubling up to 15 s
//!    └── an answer, or a quick failure ── half open: one call is tried ── slow failure ──► open
//! ```

use super::CallError;
use std::time::Duration;
use tokio::time::Instant;

use crate::sync::{Mutex, MutexGuard};

/// Failures that took at least this long count.
const SLOW: Duration = Duration::from_secs(1);
/// Slow failures in a row that open the circuit.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Default)]
struct State {
    slow_failures: u32,
    pause: Duration,
    /// How often the circuit has opened.
    openings: u64,
    /// Until when calls fail, and with what.
    open: Option<(Instant, CallError)>,
}

/// A call that was let through.
pub(super) struct Entered<'c> {
    circuit: &'c Circuit,
    /// [`State::openings`] when the call began.
    openings: u64,
}

impl Circuit {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// How much longer calls fail immediately; `None` if they are made.
    pub(crate) fn open_for(&self) -> Option<Duration> {
        let (until, _) = self.lock().open.clone()?;
        until
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }

    /// Lets a call of at most `timeout` through.
    ///
    /// # Errors
    /// The last failure, while the circuit is open.
    pub(crate) fn enter(&self, timeout: Duration) -> Result<Entered<'_>, CallError> {
        let mut state = self.lock();
        if let Some((until, why)) = &mut state.open {
            let now = Instant::now();
            if *until > now {
                return Err(why.clone());
            }
            // Half open: other callers wait for the result of this one, or for its time limit if it is given
            // up.
            *until = now + timeout;
        }
        Ok(Entered {
            circuit: self,
            openings: state.openings,
        })
    }
}

impl Entered<'_> {
    /// Records how the call ended.
    pub(crate) fn record(self, took: Duration, failure: Option<&CallError>) {
        let mut state = self.circuit.lock();
        // An error response, however slow, is an answer: the webhook works.
        let slow = failure.filter(|why| took >= SLOW && matches!(why, CallError::Transport(_) | CallError::Timeout(_)));
        let Some(why) = slow else {
            // An answer, or a failure that cost nothing: the webhook is back, or callers find out quickly
            // that it is not.
            *state = State {
                // Not reset: calls that are still under way compare it with the count when they began.
                openings: state.openings,
                ..State::default()
            };
            return;
        };
        // Calls that began before the circuit opened say nothing about the webhook since then: each of many
        // that hang at once would double the pause.
        if self.openings != state.openings {
            return;
        }
        state.slow_failures += 1;
        if state.slow_failures >= FAILURES {
            // Zero at the first opening, hence the lower bound.
            state.pause = (state.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
            state.open = Some((Instant::now() + state.pause, why.clone()));
            state.openings += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn failure() -> CallError {
        CallError::Timeout("https://x/".to_owned())
    }

    async fn fail(circuit: &Circuit) {
        let entered = circuit.enter(TIMEOUT).unwrap();
        tokio::time::advance(TIMEOUT).await;
        entered.record(TIMEOUT, Some(&failure()));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_to_an_unresponsive_webhook_fail_fast_until_a_probe() {
        let circuit = Circuit::default();
        for _ in 0..FAILURES {
            fail(&circuit).await;
        }
        for pause in [1, 2, 4, 8, 15, 15] {
            tokio::time::advance(Duration::from_secs(pause) - Duration::from_millis(1)).await;
            assert_eq!(circuit.enter(TIMEOUT).err(), Some(failure()), "still open");
            assert_eq!(circuit.open_for(), Some(Duration::from_millis(1)));
            tokio::time::advance(Duration::from_millis(2)).await;
            let probe = circuit.enter(TIMEOUT).unwrap();
            assert!(circuit.enter(TIMEOUT).is_err(), "one call is tried, others still fail");
            probe.record(TIMEOUT, Some(&failure()));
        }
        tokio::time::advance(MAX_PAUSE).await;
        circuit.enter(TIMEOUT).unwrap().record(TIMEOUT, None);
        for _ in 0..FAILURES {
            fail(&circuit).await;
        }
        assert!(circuit.enter(TIMEOUT).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_timeouts_open_the_circuit_for_one_pause() {
        let circuit = Circuit::default();
        let calls: Vec<_> = (0..7).map(|_| circuit.enter(TIMEOUT).unwrap()).collect();
        tokio::time::advance(TIMEOUT).await;
        for call in calls {
            call.record(TIMEOUT, Some(&failure()));
        }
        assert_eq!(circuit.open_for(), Some(FIRST_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_probe_is_followed_by_another() {
        let circuit = Circuit::default();
        for _ in 0..FAILURES {
            fail(&circuit).await;
        }
        tokio::time::advance(FIRST_PAUSE).await;
        let _given_up = circuit.enter(TIMEOUT).unwrap();
        tokio::time::advance(TIMEOUT).await;
        assert!(circuit.enter(TIMEOUT).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn quick_failures_and_error_responses_do_not_open_the_circuit() {
        let circuit = Circuit::default();
        for _ in 0..10 {
            let refused = CallError::Transport("refused".to_owned());
            circuit
                .enter(TIMEOUT)
                .unwrap()
                .record(Duration::from_millis(1), Some(&refused));
            let answered = CallError::Status(500, "no".to_owned());
            circuit.enter(TIMEOUT).unwrap().record(TIMEOUT, Some(&answered));
        }
        assert!(circuit.enter(TIMEOUT).is_ok());
    }
}
