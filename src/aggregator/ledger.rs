//! Limits and statistics per backend: requests in flight and their limit, responses, failures, latencies. Recorded with
//! relaxed atomics on the request path; read by `/debug/aggregator` and by the metrics.
//!
//! Entry points: [`Ledger::of`] for a backend's [`Account`], [`Account::enter`] for a request's [`Permit`].

use crate::apimachinery::value::Str;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use time::OffsetDateTime;

/// Responses per latency window. Percentiles cover the last one to two windows.
const WINDOW: u64 = 1024;
/// Histogram buckets: four per power of two, from 1 µs to 134 s.
const BUCKETS: usize = 27 * 4;

/// Limits and statistics of all APIServices. Accessed when an APIService changes or on scrape, never per request.
pub struct Ledger {
    budget: Budget,
    all: Mutex<HashMap<Str, Arc<Account>>>,
}

/// Concurrency limits per backend; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Requests other than watches and streams.
    pub requests: usize,
    /// Watches and other streams, which do not count as `requests`.
    pub watches: usize,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit of requests.
    Requests,
    /// The limit of watches.
    Watches,
}

/// Limits and statistics of one APIService.
pub struct Account {
    most_requests: AtomicUsize,
    most_watches: usize,
    in_flight: AtomicUsize,
    watching: AtomicUsize,
    answered: AtomicU64,
    server_errors: AtomicU64,
    unreachable: AtomicU64,
    unanswered: AtomicU64,
    turned_away: AtomicU64,
    latencies: Latencies,
    last_failure: Mutex<Option<(OffsetDateTime, String)>>,
}

/// Guard of one request in flight; held until the response has ended.
pub struct Permit {
    account: Arc<Account>,
    long_running: bool,
    /// The request was sent, but there is no response yet.
    awaits: bool,
}

/// Two histograms: one is current, the other is the previous window.
struct Latencies {
    windows: [[AtomicU32; BUCKETS]; 2],
    counted: AtomicU64,
    second: AtomicBool,
}

/// A snapshot of one backend's statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
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
    pub turned_away: u64,
    /// Time to the head of the response: 50th, 90th and 99th percentile.
    pub latency: Option<[Duration; 3]>,
    /// Time and cause of the last failed request.
    pub last_failure: Option<(OffsetDateTime, String)>,
}

// === impl Ledger ===

impl Ledger {
    /// Creates an empty registry whose accounts get this budget by default.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            all: Mutex::default(),
        }
    }

    /// The account of an APIService, created on first use. It survives changes of the object.
    pub fn of(&self, name: &Str) -> Arc<Account> {
        let mut all = self.lock();
        let account = all
            .entry(name.clone())
            .or_insert_with(|| Arc::new(Account::new(self.budget)));
        account.clone()
    }

    /// The default limits, for APIServices without annotations of their own.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// All accounts, by APIService.
    pub fn all(&self) -> Vec<(Str, Arc<Account>)> {
        self.lock().iter().map(|(n, a)| (n.clone(), a.clone())).collect()
    }

    /// Removes the account of a deleted APIService.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Str, Arc<Account>>> {
        self.all.lock().expect("no code panics while holding this lock")
    }
}

// === impl Account ===

impl Account {
    /// Creates an account with all counters at zero.
    pub fn new(budget: Budget) -> Self {
        Self {
            most_requests: AtomicUsize::new(budget.requests),
            most_watches: budget.watches,
            in_flight: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            latencies: Latencies::new(),
            last_failure: Mutex::default(),
        }
    }

    /// Changes the limit of concurrent requests; 0 means unlimited.
    pub fn limit_requests(&self, most: usize) {
        self.most_requests.store(most, Ordering::Relaxed);
    }

    /// Reserves a place for a request. `long_running` requests have a limit of their own; `exempt` callers may exceed
    /// the limit, but still count.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn enter(self: &Arc<Self>, long_running: bool, exempt: impl FnOnce() -> bool) -> Result<Permit, Full> {
        let (counter, most, full) = match long_running {
            true => (&self.watching, self.most_watches, Full::Watches),
            false => {
                let most = self.most_requests.load(Ordering::Relaxed);
                (&self.in_flight, most, Full::Requests)
            }
        };
        // Increment first and undo by dropping the permit: concurrent calls can then never exceed the limit.
        let before = counter.fetch_add(1, Ordering::Relaxed);
        let permit = Permit {
            account: self.clone(),
            long_running,
            awaits: false,
        };
        if most != 0 && before >= most && !exempt() {
            self.turned_away();
            return Err(full);
        }
        Ok(permit)
    }

    /// Records a request that was rejected because of a limit.
    pub fn turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a response whose head arrived after this time.
    pub fn answered(&self, after: Duration, status: u16) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if status >= 500 {
            self.server_errors.fetch_add(1, Ordering::Relaxed);
        }
        self.latencies.count(after);
    }

    /// Records a request that failed without a response.
    pub fn failed(&self, why: &str) {
        self.unreachable.fetch_add(1, Ordering::Relaxed);
        *self.failure() = Some((OffsetDateTime::now_utc(), why.to_owned()));
    }

    /// The current statistics.
    pub fn figures(&self) -> Figures {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Figures {
            limit: self.most_requests.load(Ordering::Relaxed),
            watch_limit: self.most_watches,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            watching: self.watching.load(Ordering::Relaxed),
            answered: read(&self.answered),
            server_errors: read(&self.server_errors),
            unreachable: read(&self.unreachable),
            unanswered: read(&self.unanswered),
            turned_away: read(&self.turned_away),
            latency: self.latencies.percentiles(),
            last_failure: self.failure().clone(),
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<(OffsetDateTime, String)>> {
        self.last_failure
            .lock()
            .expect("no code panics while holding this lock")
    }
}

impl Permit {
    /// Marks the request as sent. If the permit is dropped before [`Permit::settle`], the request counts as unanswered.
    pub fn send(&mut self) {
        self.awaits = true;
    }

    /// The request was answered or has failed.
    pub fn settle(&mut self) {
        self.awaits = false;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.awaits {
            self.account.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        let counter = match self.long_running {
            true => &self.account.watching,
            false => &self.account.in_flight,
        };
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Latencies ===

impl Latencies {
    fn new() -> Self {
        let window = || std::array::from_fn(|_| AtomicU32::new(0));
        Self {
            windows: [window(), window()],
            counted: AtomicU64::new(0),
            second: AtomicBool::new(false),
        }
    }

    fn count(&self, after: Duration) {
        let window = usize::from(self.second.load(Ordering::Relaxed));
        self.windows[window][bucket(after)].fetch_add(1, Ordering::Relaxed);
        // Concurrent calls may rotate or clear slightly out of step, which costs a few samples at most.
        if self.counted.fetch_add(1, Ordering::Relaxed) % WINDOW == WINDOW - 1 {
            for b in &self.windows[1 - window] {
                b.store(0, Ordering::Relaxed);
            }
            self.second.store(window == 0, Ordering::Relaxed);
        }
    }

    fn percentiles(&self) -> Option<[Duration; 3]> {
        let both = |i: usize| {
            self.windows
                .iter()
                .map(|w| u64::from(w[i].load(Ordering::Relaxed)))
                .sum()
        };
        let counts: Vec<u64> = (0..BUCKETS).map(both).collect();
        let all: u64 = counts.iter().sum();
        let at = |percent: u64| {
            let mut seen = 0;
            let found = counts.iter().position(|n| {
                seen += n;
                seen * 100 >= all * percent
            });
            upper_bound(found.unwrap_or(BUCKETS - 1))
        };
        (all > 0).then(|| [at(50), at(90), at(99)])
    }
}

fn bucket(after: Duration) -> usize {
    let us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX).max(1);
    let doubling = us.ilog2() as usize;
    // The two bits below the highest one.
    let quarter = match doubling {
        0 | 1 => 0,
        d => ((us >> (d - 2)) & 3) as usize,
    };
    (doubling * 4 + quarter).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let (doubling, quarter) = (bucket / 4, bucket as u64 % 4);
    let unit = 1_u64 << doubling;
    Duration::from_micros(if doubling < 2 {
        unit * 2
    } else {
        unit + unit / 4 * (quarter + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_account_rejects_all_but_the_exempt_and_counts_watches_apart() {
        let budget = Budget {
            requests: 2,
            watches: 1,
        };
        let account = Arc::new(Account::new(budget));
        let held: Vec<Permit> = (0..2).map(|_| account.enter(false, || false).unwrap()).collect();
        assert_eq!(account.enter(false, || false).err(), Some(Full::Requests));
        let more = (account.enter(false, || true), account.enter(true, || false));
        assert!(more.0.is_ok() && more.1.is_ok());
        assert_eq!(account.enter(true, || false).err(), Some(Full::Watches));
        let f = account.figures();
        assert_eq!((f.in_flight, f.watching, f.turned_away), (3, 1, 2));
        drop((held, more));
        let f = account.figures();
        assert_eq!((f.in_flight, f.watching), (0, 0));
        assert!(account.enter(false, || false).is_ok());
    }

    #[test]
    fn a_sent_request_without_a_response_counts_as_unanswered() {
        let account = Arc::new(Account::new(Budget::default()));
        let sent = |settles: bool| {
            let mut permit = account.enter(false, || false).unwrap();
            permit.send();
            if settles {
                permit.settle();
            }
        };
        sent(true);
        assert_eq!(account.figures().unanswered, 0);
        sent(false);
        assert_eq!(account.figures().unanswered, 1);
    }

    #[test]
    fn percentiles_cover_recent_windows_only() {
        let l = Latencies::new();
        assert_eq!(l.percentiles(), None);
        for _ in 0..WINDOW {
            l.count(Duration::from_secs(5));
        }
        for _ in 0..2 * WINDOW {
            l.count(Duration::from_millis(1));
        }
        let [_, _, p99] = l.percentiles().unwrap();
        assert!(p99 < Duration::from_millis(2), "{p99:?}");
    }

    proptest! {
        #[test]
        fn buckets_overestimate_by_at_most_a_quarter(us in 4_u64..100_000_000) {
            let at = upper_bound(bucket(Duration::from_micros(us))).as_micros() as u64;
            prop_assert!(at >= us && at <= us + us / 4 + 1, "{us} in {at}");
        }
    }
}
