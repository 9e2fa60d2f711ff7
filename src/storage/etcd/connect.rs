//! The first contact with a cluster ([`reach`]). All members are tried concurrently until one answers;
//! failures are logged within seconds.

use super::client::{Limits, Members, kv};
use super::error::{ConnectError, Failure};
use crate::tasks::Backoff;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between rounds.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(2));
/// Interval after which an unchanged failure is logged again.
const REPEAT: Duration = Duration::from_secs(10);

/// The current failure of one member.
#[derive(Default)]
struct MemberFailure {
    why: String,
    last_logged: Option<Instant>,
}

/// Returns once a member has answered, and directs calls to it.
///
/// # Errors
/// [`ConnectError::Unreachable`] after `within`, or at once if no member can be reached by retrying.
pub(super) async fn reach(members: &Members, key: &str, within: Duration) -> Result<(), ConnectError> {
    let give_up = Instant::now() + within;
    let urls: Vec<&str> = members.urls().collect();
    let mut failures: Vec<MemberFailure> = urls.iter().map(|_| MemberFailure::default()).collect();
    let mut delays = BACKOFF.delays();
    loop {
        let left = give_up - Instant::now();
        let limit = Limits::default().attempt.min(left);
        let ask = |i| async move {
            let read = |client| async move { kv(&client).get(key, None).await };
            (i, members.attempt(i, limit, read).await)
        };
        // All members at once: the first in the list may be the one that is down.
        let mut attempts: FuturesUnordered<_> = (0..urls.len()).map(ask).collect();
        let mut permanent = 0;
        while let Some((i, outcome)) = attempts.next().await {
            let failure = match outcome {
                Ok(found) => {
                    members.saw(found.header());
                    // Dropping the other attempts cancels them.
                    members.prefer(i);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            permanent += usize::from(failure.is_permanent());
            record(&mut failures[i], urls[i], &failure, limit, give_up);
        }
        // A wrong certificate does not become right by waiting.
        if permanent == urls.len() || Instant::now() >= give_up {
            let why = urls.iter().zip(&failures).map(|(url, o)| format!("{url}: {}", o.why));
            return Err(ConnectError::Unreachable {
                within,
                why: why.collect::<Vec<_>>().join("; "),
            });
        }
        tokio::time::sleep_until((Instant::now() + delays.next_delay()).min(give_up)).await;
    }
}

/// Records a member's failure, and logs it if it is new or was last logged long ago.
fn record(known: &mut MemberFailure, member: &str, failure: &Failure, limit: Duration, give_up: Instant) {
    let now = Instant::now();
    let why = match failure {
        Failure::TimedOut => format!("no answer in {limit:?}"),
        other => other.to_string(),
    };
    // A last attempt cut short by the deadline is less informative than earlier failures.
    if matches!(failure, Failure::TimedOut) && now >= give_up && !known.why.is_empty() {
        return;
    }
    // Not at each attempt: one follows the other within seconds.
    if known.why != why || known.last_logged.is_none_or(|last| now - last >= REPEAT) {
        let left = (give_up - now).as_secs();
        tracing::warn!(member, error = why, "etcd does not answer; retrying for {left} s");
        known.last_logged = Some(now);
    }
    known.why = why;
}
