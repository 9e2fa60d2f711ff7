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
    budget: Budget,
    all: Mutex<HashMap<Str, Arc<Account>>>,
}

/// Most of each at one backend at once; 0: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Requests with an end.
    pub requests: usize,
    /// Watches and other streams, which take nothing of the above.
    pub watches: usize,
}

/// What there is no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// One more request.
    Requests,
    /// One more watch.
    Watches,
}

/// One APIService's.
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

/// A request's place; given back when dropped, which is when its answer has ended.
pub struct Permit {
    account: Arc<Account>,
    long_running: bool,
    /// It was sent, and nothing came yet.
    awaits: bool,
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
    /// Most watches at once; 0: any number.
    pub watch_limit: usize,
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
    /// Requests whose time was over, or whose client had left, before an answer began.
    pub unanswered: u64,
    /// Requests over the limit.
    pub turned_away: u64,
    /// Time to the head of an answer: half of them, 90 and 99 of a hundred came sooner.
    pub latency: Option<[Duration; 3]>,
    /// When the last request came to nothing, and why.
    pub last_failure: Option<(OffsetDateTime, String)>,
}

// === impl Ledger ===

impl Ledger {
    /// No accounts; each will have this budget.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            all: Mutex::default(),
        }
    }

    /// The account of an APIService, which outlives changes of its object.
    pub fn of(&self, name: &Str) -> Arc<Account> {
        let mut all = self.lock();
        let account = all
            .entry(name.clone())
            .or_insert_with(|| Arc::new(Account::new(self.budget)));
        account.clone()
    }

    /// Of an APIService that says nothing of its own.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// All of them, by APIService.
    pub fn all(&self) -> Vec<(Str, Arc<Account>)> {
        self.lock().iter().map(|(n, a)| (n.clone(), a.clone())).collect()
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

    /// How many requests with an end it gets at once from now on; 0: any number.
    pub fn limit_requests(&self, most: usize) {
        self.most_requests.store(most, Ordering::Relaxed);
    }

    /// A place for a request, unless the backend has as many as it may have. What has no end (`long_running`) has a budget
    /// of its own, and who is `exempt` gets a place over the limit.
    ///
    /// # Errors
    /// Which budget is used up.
    pub fn enter(self: &Arc<Self>, long_running: bool, exempt: impl FnOnce() -> bool) -> Result<Permit, Full> {
        let (counter, most, full) = match long_running {
            true => (&self.watching, self.most_watches, Full::Watches),
            false => {
                let most = self.most_requests.load(Ordering::Relaxed);
                (&self.in_flight, most, Full::Requests)
            }
        };
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

    /// A request was not sent, for want of a place.
    pub fn turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
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
    /// The request is sent; until [`Permit::settle`], its end is one without an answer.
    pub fn send(&mut self) {
        self.awaits = true;
    }

    /// It was answered, or came to nothing.
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
    fn a_full_account_turns_away_all_but_the_exempt_and_watches_have_their_own() {
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
    fn a_request_that_ends_before_its_answer_begins_is_one_without_an_answer() {
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
