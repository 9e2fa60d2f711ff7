//! How long the parts of one request took: [`RequestParts`]. The audit log writes them as the annotations
//! `apiserver.latency.k8s.io/*` of slow requests (upstream:
//! `apiserver/pkg/endpoints/request/webhook_duration.go`).
//!
//! Filters and admission record through the request's audit trail. Code that does not have it, such as a
//! store or an encoder, calls [`record`] or [`timing`], which find the parts of the request whose future is
//! being polled ([`measured`]). For a request that is not audited they read a thread-local variable and no
//! clock.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

tokio::task_local! {
    // By task and not by thread: a request's future moves between the threads of the pool.
    static CURRENT: Arc<RequestParts>;
}

/// A part of a request. Parts may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Authentication of the caller.
    Authentication,
    /// Deciding whether the caller may do this.
    Authorization,
    /// Deciding whether the caller may impersonate.
    Impersonation,
    /// Waiting in a queue of priority and fairness.
    QueueWait,
    /// Calls of the store: those of etcd, or durable writes of the embedded one.
    Store,
    /// Decoding listed objects that came from the store and not from its cache.
    Decode,
    /// Making a table or partial metadata; includes encoding where rows are written without a tree.
    Transform,
    Serialize,
    /// Waiting until the connection has taken the pieces of a streamed response.
    Write,
    /// Mutating webhooks, one after the other.
    MutatingWebhooks,
    /// The slowest validating webhook; they are called at the same time.
    ValidatingWebhooks,
}

/// The names of the parts, in the order of [`Part`], as in upstream's annotations.
const NAMES: [&str; 11] = [
    "authentication",
    "authorization",
    "impersonation",
    "apf-queue-wait",
    "etcd",
    "decode-response-object",
    "transform-response-object",
    "serialize-response-object",
    "response-write",
    "mutating-webhook",
    "validating-webhook",
];

/// The durations of the parts of a request, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct RequestParts([AtomicU64; NAMES.len()]);

impl RequestParts {
    /// Adds to a part. Of parts that happen side by side, the longest counts, as upstream.
    pub(crate) fn record(&self, part: Part, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // The variants index the durations, as they do `NAMES`.
        let total = &self.0[part as usize];
        match part {
            // Relaxed: the parts are only read after the request has ended.
            Part::ValidatingWebhooks | Part::QueueWait => total.fetch_max(nanos, Ordering::Relaxed),
            _ => total.fetch_add(nanos, Ordering::Relaxed),
        };
    }

    /// The name and duration of each part that took time.
    pub(crate) fn durations(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let nanos = self.0.iter().map(|nanos| nanos.load(Ordering::Relaxed));
        NAMES
            .into_iter()
            .zip(nanos)
            .filter(|(_, nanos)| *nanos > 0)
            .map(|(name, nanos)| (name, Duration::from_nanos(nanos)))
    }
}

/// Runs a request's future with these parts as the current ones.
pub(crate) fn measured<F: Future>(parts: Arc<RequestParts>, request: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(parts, request)
}

/// Keeps the current parts for work that continues in another task or thread.
pub(crate) fn carried<T: 'static>(work: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
    match CURRENT.try_with(Arc::clone) {
        // Task-local values do not follow a spawn, so they are set again around the work.
        Ok(parts) => CURRENT.scope(parts, work).boxed(),
        Err(_) => work,
    }
}

/// Adds to a part of the current request, if it is measured.
pub(crate) fn record(part: Part, took: Duration) {
    // An error means that parts are not measured.
    let _ = CURRENT.try_with(|parts| parts.record(part, took));
}

/// Measures until it is dropped, if the current request is measured.
pub(crate) fn timing(part: Part) -> Option<Timing> {
    let parts = CURRENT.try_with(Arc::clone).ok()?;
    Some(Timing(parts, part, Instant::now()))
}

/// Made by [`timing`].
pub(crate) struct Timing(Arc<RequestParts>, Part, Instant);

impl Drop for Timing {
    fn drop(&mut self) {
        self.0.record(self.1, self.2.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sequential_calls_add_up_and_of_concurrent_ones_the_longest_counts() {
        let parts = RequestParts::default();
        for took in [2 * MS, 3 * MS, MS] {
            parts.record(Part::MutatingWebhooks, took);
            parts.record(Part::ValidatingWebhooks, took);
        }
        let durations: Vec<_> = parts.durations().collect();
        assert_eq!(
            durations,
            [("mutating-webhook", 6 * MS), ("validating-webhook", 3 * MS)]
        );
    }

    #[test]
    fn the_names_are_in_the_order_of_the_parts() {
        for (part, name) in [
            (Part::Authentication, "authentication"),
            (Part::QueueWait, "apf-queue-wait"),
            (Part::Store, "etcd"),
            (Part::Write, "response-write"),
            (Part::ValidatingWebhooks, "validating-webhook"),
        ] {
            let parts = RequestParts::default();
            parts.record(part, MS);
            assert_eq!(parts.durations().collect::<Vec<_>>(), [(name, MS)]);
        }
    }

    #[tokio::test]
    async fn only_carried_tasks_count_towards_the_request() {
        record(Part::Store, MS);
        assert!(timing(Part::Serialize).is_none());
        let parts = Arc::new(RequestParts::default());
        let request = async {
            record(Part::Store, MS);
            let work = async {
                let (timing, begun) = (timing(Part::Serialize), Instant::now());
                // Two readings of a coarse clock may be equal, and a part that took no time is not listed.
                while begun.elapsed().is_zero() {}
                drop(timing);
                record(Part::Store, MS);
            };
            tokio::spawn(carried(work.boxed())).await.unwrap();
            tokio::spawn(async { record(Part::Store, MS) }).await.unwrap();
        };
        measured(parts.clone(), request).await;
        let durations: Vec<_> = parts.durations().collect();
        assert_eq!(durations[0], ("etcd", 2 * MS));
        assert_eq!(durations[1].0, "serialize-response-object");
    }
}
