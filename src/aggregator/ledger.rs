//! What each backend is owed and what it did: requests under way and their limit, answers, failures, latencies. Counted
//! with plain atomics as requests pass; read by `/debug/aggregator`.

use crate::apimachinery::value::Str;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use time::OffsetDateTime;

/// Answers in one window of latencies: percentiles are those of the last one to two windows.
const WINDOW: u64 = 1024;
/// Four to each doubling, from a microsecond to 134 s.
const BUCKETS: usize = 27 * 4;

/// The accounts of all APIServices. Looked at when an APIService changes or somebody asks, not when a request comes.
pub struct Ledger {
    limit: usize,
    all: Mutex<HashMap<Str, Arc<Account>>>,
}

/// One APIService's.
pub struct Account {
    limit: AtomicUsize,
    in_flight: AtomicUsize,
    watching: AtomicUsize,
    answered: AtomicU64,
    server_errors: AtomicU64,
    unreachable: AtomicU64,
    turned_away: AtomicU64,
    latencies: Latencies,
    last_failure: Mutex<Option<(OffsetDateTime, String)>>,
}

/// A request's place; given back when dropped, which is when its answer has ended.
pub struct Permit {
    account: Arc<Account>,
    long_running: bool,
}

/// Two windows: one is counted in, the other is the last one.
struct Latencies {
    windows: [[AtomicU32; BUCKETS]; 2],
    counted: AtomicU64,
    second: AtomicBool,
}

/// A moment's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Most requests at once; 0: any number.
    pub limit: usize,
    /// Requests under way, but for those that have no end.
    pub in_flight: usize,
    /// Watches and other streams.
    pub watching: usize,
    /// Answers of the backend.
    pub answered: u64,
    /// Of these, with 500 and above.
    pub server_errors: u64,
    /// Requests that came to no answer.
    pub unreachable: u64,
    /// Requests over the limit.
    pub turned_away: u64,
    /// Time to the head of an answer: half of them, 90 and 99 of a hundred came sooner.
    pub latency: Option<[Duration; 3]>,
    /// When the last request came to nothing, and why.
    pub last_failure: Option<(OffsetDateTime, String)>,
}

// === impl Ledger ===

impl Ledger {
    /// No accounts; each will take `limit` requests at once, or any number where that is 0.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            all: Mutex::default(),
        }
    }

    /// The account of an APIService, which outlives changes of its object.
    pub fn of(&self, name: &Str) -> Arc<Account> {
        let mut all = self.lock();
        let account = all
            .entry(name.clone())
            .or_insert_with(|| Arc::new(Account::new(self.limit)));
        account.clone()
    }

    /// Of an APIService that says nothing of its own.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The APIService is gone.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Str, Arc<Account>>> {
        self.all.lock().expect("no code panics while holding this lock")
    }
}

// === impl Account ===

impl Account {
    /// Nothing yet.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            in_flight: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            latencies: Latencies::new(),
            last_failure: Mutex::default(),
        }
    }

    /// How many requests it gets at once from now on; 0: any number.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// A place for a request, unless the backend has as many as it may have. What has no end (`long_running`) takes none,
    /// and who is `exempt` gets one over the limit.
    pub fn enter(self: &Arc<Self>, long_running: bool, exempt: impl FnOnce() -> bool) -> Option<Permit> {
        let counter = if long_running { &self.watching } else { &self.in_flight };
        let before = counter.fetch_add(1, Ordering::Relaxed);
        let permit = Permit {
            account: self.clone(),
            long_running,
        };
        let limit = self.limit.load(Ordering::Relaxed);
        if !long_running && limit != 0 && before >= limit && !exempt() {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(permit)
    }

    /// The backend answered after this long.
    pub fn answered(&self, after: Duration, status: u16) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if status >= 500 {
            self.server_errors.fetch_add(1, Ordering::Relaxed);
        }
        self.latencies.count(after);
    }

    /// A request came to no answer.
    pub fn failed(&self, why: &str) {
        self.unreachable.fetch_add(1, Ordering::Relaxed);
        *self.failure() = Some((OffsetDateTime::now_utc(), why.to_owned()));
    }

    /// The numbers of this moment.
    pub fn figures(&self) -> Figures {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Figures {
            limit: self.limit.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            watching: self.watching.load(Ordering::Relaxed),
            answered: read(&self.answered),
            server_errors: read(&self.server_errors),
            unreachable: read(&self.unreachable),
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

impl Drop for Permit {
    fn drop(&mut self) {
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
    // The two bits below the highest.
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
    fn a_full_account_turns_away_all_but_the_exempt_and_the_endless() {
        let account = Arc::new(Account::new(2));
        let held: Vec<Permit> = (0..2).map(|_| account.enter(false, || false).unwrap()).collect();
        assert!(account.enter(false, || false).is_none());
        let more = (account.enter(false, || true), account.enter(true, || false));
        assert!(more.0.is_some() && more.1.is_some());
        let f = account.figures();
        assert_eq!((f.in_flight, f.watching, f.turned_away), (3, 1, 1));
        drop((held, more));
        let f = account.figures();
        assert_eq!((f.in_flight, f.watching), (0, 0));
        assert!(account.enter(false, || false).is_some());
    }

    #[test]
    fn percentiles_forget_what_is_long_past() {
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
        fn a_bucket_is_never_off_by_more_than_a_quarter(us in 4_u64..100_000_000) {
            let at = upper_bound(bucket(Duration::from_micros(us))).as_micros() as u64;
            prop_assert!(at >= us && at <= us + us / 4 + 1, "{us} in {at}");
        }
    }
}
