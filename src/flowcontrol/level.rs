//! [`Level`]: a priority level at work. It guards a [`QueueSet`] with a lock that is held for a fraction of a
//! microsecond and never while a request waits, wakes the requests that may run, and counts.

mod permit;

pub(crate) use permit::Permit;

use super::clock::Clock;
use super::housekeeping::Housekeeping;
use super::integrator::Observed;
use super::max_in_flight::RequestClass;
use super::metrics::{Families, Series};
use super::queueset::{QueueSet, Queuing, Rejected, Started};
use super::read_write::{Phase, ReadVsWrite};
use super::retry_after::RetryAfter;
use super::utilization::Utilization;
use super::work_estimate::WorkEstimate;
use crate::request::{RequestInfo, UserInfo};
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::compute::{HeldBackFlows, RunnableJobs};
use crate::telemetry::Telemetry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Name of the schema and of the level that is not limited.
pub(crate) const EXEMPT: &str = "exempt";

/// How long a request keeps its seats when others need them, unless it waits for the compute pool. A request
/// that takes longer waits for its client or for another server. With upstream, clients that do not read
/// their responses can occupy a level until the request timeout. Unit tests hold seats longer, so that they
/// can fill a level.
pub(crate) const HOLD: Duration = Duration::from_millis(if cfg!(test) { 5_000 } else { 15 });

pub(crate) struct Level {
    name: Arc<str>,
    shared: Arc<Shared>,
    /// The seats that one request may occupy; 0 if the level sets no limit.
    max_seats: AtomicU32,
    state: Mutex<State>,
}

/// The dependencies that all levels share.
pub(crate) struct Shared {
    /// One time base, so that readings of different levels can be compared.
    pub clock: Clock,
    /// Notified when a level has an event that is due before the task wakes up.
    pub housekeeping: Housekeeping,
    /// Metrics that requests update.
    pub families: Arc<Families>,
    /// Current requests of all levels, by kind and phase.
    pub by_kind: ReadVsWrite,
    /// The denominator of the utilization of a level without seats.
    pub tenth_of_server: u32,
    /// Flows whose callers must first read their responses.
    pub held_back: Arc<HeldBackFlows>,
}

impl Shared {
    /// For the levels of a server with that many seats.
    pub(crate) fn new(server_limit: u32, telemetry: &Telemetry) -> Arc<Self> {
        let clock = Clock::start();
        Arc::new(Self {
            clock,
            housekeeping: Housekeeping::default(),
            families: Families::register(telemetry),
            by_kind: ReadVsWrite::new(clock.now()),
            tenth_of_server: server_limit / 10,
            held_back: Arc::default(),
        })
    }
}

struct State {
    set: QueueSet<Request>,
    /// The flow schemas of the level by account. A deleted schema keeps its place: its requests may still run,
    /// and it gets the place back if it is created again. The registry keeps the series of every name that had
    /// requests anyway, as upstream's, so giving places back would save the smaller part.
    schemas: Vec<Series>,
    /// The account of each schema by its name. Requests wait for the level's lock while a change of the configuration
    /// asks for all of them, of which there may be tens of thousands.
    accounts: BTreeMap<Arc<str>, u32>,
    retry_after: RetryAfter,
    utilization: Utilization,
}

/// The level's data of a request in its set.
pub(crate) struct Request {
    /// The caller.
    pub user: Arc<UserInfo>,
    /// For metrics by verb, and for the dump of requests.
    pub info: Arc<RequestInfo>,
    flow: u64,
    held_back: Arc<HeldBackFlows>,
    waker: Option<Waker>,
    /// `None` until it executes.
    runnable: Option<RunnableJobs>,
}

impl Request {
    /// Begins to count the request's jobs on the compute pool.
    fn count_jobs(&mut self) -> RunnableJobs {
        let jobs = RunnableJobs::of_flow(self.flow, &self.held_back);
        self.runnable.insert(jobs).clone()
    }

    /// True if the request has unfinished jobs on the compute pool.
    fn computes(&self) -> bool {
        self.runnable.as_ref().is_some_and(RunnableJobs::any)
    }

    /// True if responses of its flow wait until the caller has read others.
    fn is_held_back(&self) -> bool {
        self.held_back.contains(self.flow)
    }
}

/// The request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Seconds for `Retry-After`.
    pub retry_after: u64,
}

impl Level {
    /// A level that has had no request yet, and no seats until it is configured.
    pub(super) fn new(name: Arc<str>, shared: &Arc<Shared>, queuing: Queuing) -> Self {
        let now = shared.clock.now();
        Self {
            name,
            shared: shared.clone(),
            max_seats: AtomicU32::new(0),
            state: Mutex::new(State {
                set: QueueSet::new(now, queuing, 0, HOLD)
                    .keeping_seats_if(Request::computes)
                    .holding_back_if(Request::is_held_back),
                schemas: Vec::new(),
                accounts: BTreeMap::new(),
                retry_after: RetryAfter::default(),
                utilization: Utilization::new(now),
            }),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The seats that one request may occupy; `None` if the level sets no limit.
    pub(crate) fn max_seats(&self) -> Option<u32> {
        Some(self.max_seats.load(Ordering::Relaxed)).filter(|max| *max > 0)
    }

    /// True for the level without a limit.
    pub(crate) fn is_exempt(&self) -> bool {
        &*self.name == EXEMPT
    }

    /// Counts the watches interested in a write.
    pub(super) fn note_watches(&self, account: u32, watches: u32) {
        self.lock().schemas[account as usize].watches(watches);
    }

    /// The number of a flow schema in this level.
    pub(super) fn account_of(&self, schema: &str) -> u32 {
        let mut state = self.lock();
        if let Some(known) = state.accounts.get(schema) {
            return *known;
        }
        let series = Series::new(&self.shared.families, &self.name, schema);
        let account = state.schemas.len() as u32;
        state.accounts.insert(series.schema().clone(), account);
        state.schemas.push(series);
        account
    }

    pub(super) fn configure(&self, queuing: Queuing, limit: u32, max_seats: Option<u32>) {
        // An estimate with the old bound is harmless, so it needs no ordering with the set.
        self.max_seats.store(max_seats.unwrap_or(0), Ordering::Relaxed);
        let now = self.shared.clock.now();
        let mut state = self.lock();
        state.set.reconfigure(now, queuing, limit);
        self.unlock_and_wake(state, now);
    }

    /// Begins a request.
    ///
    /// # Errors
    /// [`TooMany`] if the level or the flow's queues are full.
    pub(crate) fn start(
        self: &Arc<Self>,
        work: WorkEstimate,
        hash: u64,
        account: u32,
        user: &Arc<UserInfo>,
        info: &Arc<RequestInfo>,
    ) -> Result<Permit, TooMany> {
        let request = Request {
            user: user.clone(),
            info: info.clone(),
            flow: hash,
            held_back: self.shared.held_back.clone(),
            waker: None,
            runnable: None,
        };
        let now = self.shared.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let series = &state.schemas[account as usize];
        series.seats(work.max_seats());
        let (id, runnable) = match state.set.start(now, work, hash, account, request) {
            Ok(Started::Executing(id)) => {
                series.dispatched();
                // Upstream's queues see every request of such a level, also those that need not wait.
                if state.set.is_queued(id) {
                    series.queue_length(1);
                    series.waited(Duration::ZERO, true);
                }
                (id, Some(state.set.item_mut(id).count_jobs()))
            }
            Ok(Started::Waiting(id)) => {
                // Jobs are counted from the dispatch on; until then the request cannot have any.
                series.queue_length(state.set.queue_length(id));
                (id, None)
            }
            Err(reason) => {
                series.rejected(match reason {
                    Rejected::QueueFull => "queue-full",
                    Rejected::ConcurrencyLimit => "concurrency-limit",
                });
                let retry_after = state.retry_after.rejected(now.as_secs());
                return Err(TooMany { retry_after });
            }
        };
        let waiting = runnable.is_none();
        let phase = if waiting { Phase::Waiting } else { Phase::Executing };
        let class = RequestClass::of(&info.verb);
        self.shared.by_kind.enter(now, class, phase);
        // Others may have become runnable: `start` takes seats back from requests that held them too long.
        self.unlock_and_wake(guard, now);
        Ok(Permit {
            level: self.clone(),
            id,
            class,
            waiting,
            runnable,
        })
    }

    /// Runs due work; called by the housekeeping task.
    pub(super) fn advance(&self) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        state.set.advance(now);
        self.unlock_and_wake(state, now);
    }

    /// When something is due next.
    pub(super) fn next_event(&self) -> Option<Duration> {
        self.lock().set.next_event()
    }

    /// True if it has no requests.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().set.is_idle()
    }

    /// Ends a period of the seat demand.
    pub(super) fn reset_demand(&self) -> Observed {
        // Read outside of the lock, which every request of the level takes. The set tolerates times out of order.
        let now = self.shared.clock.now();
        self.lock().set.reset_demand(now)
    }

    /// Passes the set and the series of each schema by account to `look`, under the level's lock.
    pub(super) fn inspect<R>(&self, look: impl FnOnce(&QueueSet<Request>, &[Series]) -> R) -> R {
        let state = self.lock();
        look(&state.set, &state.schemas)
    }

    /// Passes the utilization up to now to `look`, under the level's lock.
    pub(super) fn inspect_utilization(&self, look: impl FnOnce(&mut Utilization, Duration)) {
        let now = self.shared.clock.now();
        look(&mut self.lock().utilization, now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends a critical section: the requests that were dispatched in it are woken after the lock is released.
    fn unlock_and_wake(&self, mut guard: MutexGuard<'_, State>, now: Duration) {
        let state = &mut *guard;
        // Most critical sections dispatch nobody else.
        let wakers = match state.set.has_dispatched() {
            true => self.go_on(state, now),
            false => Vec::new(),
        };
        state.utilization.note(now, &state.set, self.shared.tenth_of_server);
        self.shared.housekeeping.needed_at(state.set.next_event());
        // A woken request takes this lock at once: waking under it would make the other thread wait.
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Counts the requests that were dispatched since the last time, and returns their wakers.
    fn go_on(&self, state: &mut State, now: Duration) -> Vec<Waker> {
        let mut woken = Vec::new();
        state.set.take_dispatched(&mut woken);
        let dispatched = woken.into_iter();
        dispatched
            .filter_map(|id| {
                let times = state.set.times(id);
                let series = &state.schemas[times.account as usize];
                series.dispatched();
                series.waited(now.saturating_sub(times.arrived), true);
                let request = state.set.item_mut(id);
                let class = RequestClass::of(&request.info.verb);
                self.shared.by_kind.dispatched(now, class);
                request.waker.take()
            })
            .collect()
    }
}
