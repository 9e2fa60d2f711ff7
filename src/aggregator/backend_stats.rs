//! Limits and statistics per backend: requests in flight and their limit, responses, failures, latencies.
//! Recorded with relaxed atomics on the request path; read by `/debug/aggregator` and by the metrics.
//!
//! Entry points: [`StatsRegistry::of`] for a backend's [`BackendStats`], [`BackendStats::enter`] for a
//! request's [`InFlightPermit`].

use crate::apimachinery::value::Str;
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::shares::{Caller, Shares};
use crate::telemetry::Latencies;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use time::OffsetDateTime;

/// Limits and statistics of all APIServices. Accessed when an APIService changes or on scrape, never per
/// request.
pub(crate) struct StatsRegistry {
    limits: BackendLimits,
    all: Mutex<HashMap<Str, Arc<BackendStats>>>,
}

/// Concurrency limits per backend; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackendLimits {
    /// Requests other than watches and streams.
    pub requests: usize,
    /// Watches and other streams, which do not count as `requests`.
    pub watches: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// The limit of requests.
    Requests,
    /// The limit of watches.
    Watches,
}

/// Limits and statistics of one APIService.
pub(crate) struct BackendStats {
    max_requests: AtomicUsize,
    max_watches: usize,
    /// Shares of `max_requests`. The gateway's seats limit a flood only while its requests occupy seats.
    in_flight: Shares,
    /// Shares of `max_watches`.
    watching: Shares,
    answered: AtomicU64,
    server_errors: AtomicU64,
    unreachable: AtomicU64,
    unanswered: AtomicU64,
    rejected: AtomicU64,
    latencies: Latencies,
    last_failure: Mutex<Option<(OffsetDateTime, String)>>,
}

/// Counters per row of the table of callers.
const CALLERS: u16 = 64;

/// Guard of one request in flight; held until the response has ended.
pub(crate) struct InFlightPermit {
    stats: Arc<BackendStats>,
    caller: Caller,
    /// A watch or another stream.
    long_running: bool,
    /// The request was sent, but there is no response yet.
    awaiting_response: bool,
}

/// A snapshot of one backend's statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatsSnapshot {
    /// Limit of concurrent requests; 0 means unlimited.
    pub limit: usize,
    /// Limit of concurrent watches; 0 means unlimited.
    pub watch_limit: usize,
    /// Requests in flight, except watches and streams.
    pub in_flight: usize,
    /// Watches and other streams in flight.
    pub watching: usize,
    /// Responses of the backend.
    pub answered: u64,
    /// Responses with a status of 500 or above.
    pub server_errors: u64,
    /// Requests that failed without a response.
    pub unreachable: u64,
    /// Requests that timed out, or whose client disconnected, before the response began.
    pub unanswered: u64,
    /// Requests rejected because of a limit.
    pub rejected: u64,
    /// Time to the head of the response: 50th, 90th and 99th percentile.
    pub latency: Option<[Duration; 3]>,
    /// Time and cause of the last failed request.
    pub last_failure: Option<(OffsetDateTime, String)>,
}

// === impl StatsRegistry ===

impl StatsRegistry {
    /// Creates an empty registry whose backends get these limits by default.
    pub(crate) fn new(limits: BackendLimits) -> Self {
        Self {
            limits,
            all: Mutex::default(),
        }
    }

    /// The statistics of an APIService, created on first use. It survives changes of the object.
    pub(crate) fn of(&self, name: &Str) -> Arc<BackendStats> {
        let mut all = self.lock();
        let stats = all
            .entry(name.clone())
            .or_insert_with(|| Arc::new(BackendStats::new(self.limits)));
        stats.clone()
    }

    /// The default limits, for APIServices without annotations of their own.
    pub(crate) fn limits(&self) -> BackendLimits {
        self.limits
    }

    /// All backends, by APIService.
    pub(crate) fn all(&self) -> Vec<(Str, Arc<BackendStats>)> {
        self.lock().iter().map(|(n, a)| (n.clone(), a.clone())).collect()
    }

    /// Removes the statistics of a deleted APIService.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Str, Arc<BackendStats>>> {
        self.all.lock()
    }
}

// === impl BackendStats ===

impl BackendStats {
    /// Creates statistics with all counters at zero.
    pub(crate) fn new(limits: BackendLimits) -> Self {
        Self {
            max_requests: AtomicUsize::new(limits.requests),
            max_watches: limits.watches,
            in_flight: Shares::new(CALLERS),
            watching: Shares::new(CALLERS),
            answered: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            latencies: Latencies::default(),
            last_failure: Mutex::default(),
        }
    }

    /// Changes the limit of concurrent requests; 0 means unlimited.
    pub(crate) fn limit_requests(&self, most: usize) {
        self.max_requests.store(most, Ordering::Relaxed);
    }

    /// Admits a request of a caller. `long_running` requests have a limit of their own; `exempt` callers may
    /// exceed the limit, but still count. One caller cannot take all places.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn enter(
        self: &Arc<Self>,
        long_running: bool,
        caller: &str,
        exempt: impl FnOnce() -> bool,
    ) -> Result<InFlightPermit, LimitReached> {
        let (places, most, reached) = match long_running {
            true => (&self.watching, self.max_watches, LimitReached::Watches),
            false => (
                &self.in_flight,
                self.max_requests.load(Ordering::Relaxed),
                LimitReached::Requests,
            ),
        };
        let Some(caller) = places.enter(most, caller, exempt) else {
            self.record_rejection();
            return Err(reached);
        };
        Ok(InFlightPermit {
            stats: self.clone(),
            caller,
            long_running,
            awaiting_response: false,
        })
    }

    /// Records a request that was rejected because of a limit.
    pub(crate) fn record_rejection(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a response whose head arrived after this time.
    pub(crate) fn record_response(&self, after: Duration, status: u16) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if status >= 500 {
            self.server_errors.fetch_add(1, Ordering::Relaxed);
        }
        self.latencies.count(after);
    }

    /// Records a request that failed without a response.
    pub(crate) fn record_failure(&self, why: &str) {
        self.unreachable.fetch_add(1, Ordering::Relaxed);
        *self.failure() = Some((OffsetDateTime::now_utc(), why.to_owned()));
    }

    /// The current statistics. The counters are read one by one, so they may differ by requests under way.
    pub(crate) fn snapshot(&self) -> StatsSnapshot {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        StatsSnapshot {
            limit: self.max_requests.load(Ordering::Relaxed),
            watch_limit: self.max_watches,
            in_flight: self.in_flight.taken(),
            watching: self.watching.taken(),
            answered: read(&self.answered),
            server_errors: read(&self.server_errors),
            unreachable: read(&self.unreachable),
            unanswered: read(&self.unanswered),
            rejected: read(&self.rejected),
            latency: self.latencies.percentiles(),
            last_failure: self.failure().clone(),
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<(OffsetDateTime, String)>> {
        self.last_failure.lock()
    }
}

impl InFlightPermit {
    /// Marks the request as sent. If the permit is dropped before [`InFlightPermit::settle`], the request
    /// counts as unanswered.
    pub(crate) fn send(&mut self) {
        self.awaiting_response = true;
    }

    /// The request was answered or has failed.
    pub(crate) fn settle(&mut self) {
        self.awaiting_response = false;
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        if self.awaiting_response {
            self.stats.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        match self.long_running {
            true => self.stats.watching.leave(self.caller),
            false => self.stats.in_flight.leave(self.caller),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_backend_rejects_all_but_the_exempt_and_counts_watches_apart() {
        let limits = BackendLimits {
            requests: 2,
            watches: 1,
        };
        let stats = Arc::new(BackendStats::new(limits));
        let held: Vec<InFlightPermit> = (0..2).map(|_| stats.enter(false, "jane", || false).unwrap()).collect();
        assert_eq!(stats.enter(false, "jane", || false).err(), Some(LimitReached::Requests));
        let more = (stats.enter(false, "jane", || true), stats.enter(true, "jane", || false));
        assert!(more.0.is_ok() && more.1.is_ok());
        assert_eq!(stats.enter(true, "jane", || false).err(), Some(LimitReached::Watches));
        let f = stats.snapshot();
        assert_eq!((f.in_flight, f.watching, f.rejected), (3, 1, 2));
        drop((held, more));
        let f = stats.snapshot();
        assert_eq!((f.in_flight, f.watching), (0, 0));
        assert!(stats.enter(false, "jane", || false).is_ok());
    }

    #[test]
    fn one_caller_leaves_places_for_others() {
        let limits = BackendLimits {
            requests: 40,
            watches: 40,
        };
        let stats = Arc::new(BackendStats::new(limits));
        for watches in [false, true] {
            let all = || -> Vec<_> { std::iter::from_fn(|| stats.enter(watches, "flood", || false).ok()).collect() };
            let flood = all();
            assert_eq!(flood.len(), 30);
            assert!(stats.enter(watches, "quiet", || false).is_ok());
            drop(flood);
            assert_eq!(all().len(), 30, "all places were given back");
        }
    }

    #[test]
    fn a_sent_request_without_a_response_counts_as_unanswered() {
        let stats = Arc::new(BackendStats::new(BackendLimits::default()));
        let sent = |settles: bool| {
            let mut permit = stats.enter(false, "jane", || false).unwrap();
            permit.send();
            if settles {
                permit.settle();
            }
        };
        sent(true);
        assert_eq!(stats.snapshot().unanswered, 0);
        sent(false);
        assert_eq!(stats.snapshot().unanswered, 1);
    }
}
