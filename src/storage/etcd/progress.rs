//! Progress requests of one resource, as upstream's `pkg/storage/cacher/progress`: [`Waiters`] counts the
//! reads that wait for the cache to reach a revision, and the feed's [`Requester`] decides when to ask etcd
//! how far the watch is.
//!
//! One request is in flight for all reads that wait. A read that arrives meanwhile and needs a newer revision
//! causes the next request when the response arrives. An interval ([`RETRY`]) applies only if etcd does not
//! respond, or responds with a revision that is too old: it drops requests for watches that have not yet
//! received all earlier events.

use crate::storage::Revision;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time after which an unsuccessful request is repeated, unless it is configured; upstream's interval.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// The reads that wait for progress.
#[derive(Default)]
pub(super) struct Waiters {
    count: AtomicUsize,
    /// The newest revision that a read waited for.
    wanted: AtomicU64,
    changed: Notify,
}

/// A waiting read, until it is dropped.
pub(super) struct Waiter<'a>(&'a Waiters);

impl Waiters {
    /// Registers a read that needs at least `revision`.
    pub(crate) fn register(&self, revision: Revision) -> Waiter<'_> {
        self.count.fetch_add(1, Ordering::AcqRel);
        let waiter = Waiter(self);
        waiter.wants(revision);
        waiter
    }

    /// The newest revision that is waited for, if it is newer than `at`.
    pub(crate) fn beyond(&self, at: Revision) -> Option<Revision> {
        let wanted = Revision(self.wanted.load(Ordering::Acquire));
        // Without the count, the mark of a read that has given up would keep progress requests going for
        // ever.
        (wanted > at && self.count.load(Ordering::Acquire) > 0).then_some(wanted)
    }

    /// Waits until a read registers or needs a newer revision. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Waiter<'_> {
    /// The read needs at least `revision`.
    pub(crate) fn wants(&self, revision: Revision) {
        self.0.wanted.fetch_max(revision.0, Ordering::AcqRel);
        // `notify_one` keeps a permit: the feed sees the change even if it is busy just now.
        self.0.changed.notify_one();
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The last request.
struct Sent {
    at: Instant,
    wanted: Revision,
    in_flight: bool,
}

/// Decides when the feed sends a request on its watch.
pub(super) struct Requester {
    retry: Duration,
    last: Option<Sent>,
}

impl Requester {
    /// Repeats an unsuccessful request after `retry`.
    pub(crate) fn new(retry: Duration) -> Self {
        Self { retry, last: None }
    }

    /// Returns once a request for `wanted` is due. Cancel safe.
    pub(crate) async fn due(&self, wanted: Revision) {
        let Some(sent) = &self.last else { return };
        // An answer that was too old for the same wish means that etcd lags; asking again at once would only
        // spin.
        if sent.in_flight || wanted <= sent.wanted {
            tokio::time::sleep_until(sent.at + self.retry).await;
        }
    }

    /// A request for `wanted` has been sent.
    pub(crate) fn sent(&mut self, wanted: Revision) {
        self.last = Some(Sent {
            at: Instant::now(),
            wanted,
            in_flight: true,
        });
    }

    /// A response has been applied.
    pub(crate) fn answered(&mut self) {
        if let Some(sent) = &mut self.last {
            sent.in_flight = false;
        }
    }

    /// A response could not be applied: the next request is due at once.
    pub(crate) fn wasted(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const fn r(n: u64) -> Revision {
        Revision(n)
    }

    fn is_due(requester: &Requester, wanted: Revision) -> bool {
        requester.due(wanted).now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_due_at_once_and_shared_while_in_flight() {
        let mut requester = Requester::new(RETRY);
        assert!(is_due(&requester, r(5)), "the first read does not wait");
        requester.sent(r(5));
        assert!(!is_due(&requester, r(5)));
        assert!(!is_due(&requester, r(9)), "one request is in flight");
        requester.answered();
        assert!(is_due(&requester, r(9)), "who came later needs another one");
        requester.sent(r(9));
        requester.wasted();
        assert!(is_due(&requester, r(9)));
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_a_sufficient_response_is_repeated_after_the_interval() {
        for answered in [false, true] {
            let mut requester = Requester::new(RETRY);
            requester.sent(r(5));
            if answered {
                requester.answered();
            }
            let since = Instant::now();
            requester.due(r(5)).await;
            assert_eq!(since.elapsed(), RETRY, "answered: {answered}");
        }
    }

    #[tokio::test]
    async fn only_reads_that_still_wait_want_progress() {
        let waiters = Waiters::default();
        assert_eq!(waiters.beyond(r(0)), None);
        let early = waiters.register(r(3));
        waiters.changed().await;
        assert_eq!((waiters.beyond(r(2)), waiters.beyond(r(3))), (Some(r(3)), None));
        let late = waiters.register(r(0));
        late.wants(r(7));
        assert_eq!(waiters.beyond(r(3)), Some(r(7)));
        drop((early, late));
        assert_eq!(waiters.beyond(r(3)), None);
    }
}
