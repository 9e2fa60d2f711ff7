//! Views of a set, for its level, for metrics, and for dumps.

use super::queue::Queue;
use super::requests::{Id, List, Request, State};
use super::{ESTIMATED_SERVICE, FlowSchemaStats, QueueSet, Queuing, Totals};
use crate::flowcontrol::seat_seconds::SeatSeconds;
use crate::flowcontrol::work_estimate::WorkEstimate;
use std::time::Duration;

/// Times and account of a request, copied because its slot is freed when it finishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub arrived: Duration,
    /// When it was dispatched; its arrival before that.
    pub started: Duration,
    /// The number of its flow schema.
    pub account: u32,
}

/// A row of the dump of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'a, T> {
    /// Queue, and position in it; `None` if it executes.
    pub place: (Option<u32>, Option<u32>),
    /// Its flow schema.
    pub account: u32,
    /// The estimate made when it arrived.
    pub work: WorkEstimate,
    pub arrived: Duration,
    /// When it was dispatched.
    pub started: Option<Duration>,
    /// The caller's data.
    pub item: &'a T,
}

/// A row of the dump of queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueDigest {
    /// Number in the set.
    pub index: u32,
    pub waiting: u32,
    pub executing: u32,
    pub seats_in_use: u32,
    /// The meter's reading at which the next request is due.
    pub next_dispatch: SeatSeconds,
    /// Seats that the waiting requests need at first and at most.
    pub initial_seats: u64,
    /// See `initial_seats`.
    pub max_seats: u64,
    /// Work of the waiting requests.
    pub work: SeatSeconds,
}

impl<T> QueueSet<T> {
    /// When a request came and went on, and its account.
    pub(crate) fn times(&self, id: Id) -> Times {
        let request = self.requests.get(id);
        Times {
            arrived: request.arrived,
            started: request.started,
            account: request.account,
        }
    }

    /// The length of a request's queue; 0 without one.
    pub(crate) fn queue_length(&self, id: Id) -> u32 {
        let queue = self.requests.get(id).queue;
        queue
            .and_then(|index| self.queues.get(index))
            .map_or(0, |queue| queue.waiting.len)
    }

    /// Counters of the whole set.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Counters by account, in order of account numbers. Accounts without requests so far may be missing.
    pub(crate) fn accounts(&self) -> &[FlowSchemaStats] {
        &self.accounts
    }

    /// True if nothing waits or executes.
    pub(crate) fn is_idle(&self) -> bool {
        self.totals.waiting == 0 && self.totals.executing == 0
    }

    /// The treatment of requests beyond the limit.
    pub(crate) fn queuing(&self) -> Queuing {
        self.queuing
    }

    /// Seats the set may occupy now; borrowing moves it every 10 s.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// The queues in use, in order.
    pub(crate) fn queues(&self) -> Vec<QueueDigest> {
        let digest = |(index, q): (u32, &Queue)| QueueDigest {
            index,
            waiting: q.waiting.len,
            executing: q.executing,
            seats_in_use: q.seats_in_use,
            next_dispatch: q.next_dispatch,
            initial_seats: self.initial_seats(&q.waiting),
            max_seats: q.waiting_seats,
            work: q.waiting_work,
        };
        let mut all: Vec<QueueDigest> = self.queues.iter().map(digest).collect();
        // The queues beyond `PLACES` come from a hash map.
        all.sort_by_key(|q| q.index);
        all
    }

    fn initial_seats(&self, list: &List) -> u64 {
        self.requests.iter(list).map(|r| u64::from(r.work.initial_seats)).sum()
    }

    /// All requests: those in queues by queue and position, then those that execute.
    pub(crate) fn requests(&self) -> Vec<Waiting<'_, T>> {
        let mut queues: Vec<(u32, &Queue)> = self.queues.iter().collect();
        queues.sort_by_key(|(index, _)| *index);
        let waiting = queues.into_iter().flat_map(|(index, queue)| {
            let position = self.requests.iter(&queue.waiting).zip(0u32..);
            position.map(move |(request, at)| digest(request, (Some(index), Some(at))))
        });
        let running = self.requests.running().map(|r| digest(r, (r.queue, None)));
        waiting.chain(running).collect()
    }

    /// Bounds of the readings at which the oldest requests of the queues are due, and the same less the work
    /// that is estimated to be in progress. `None` if nothing waits.
    pub(crate) fn due_bounds(&self) -> Option<[(SeatSeconds, SeatSeconds); 2]> {
        let waiting = || self.queues.iter().filter(|(_, q)| q.waiting.len > 0).map(|(_, q)| q);
        // Executing requests were charged in advance; without that charge, queues can be compared.
        let discounted = |q: &Queue| q.next_dispatch - ESTIMATED_SERVICE.times(q.seats_in_use);
        Some([
            (
                waiting().map(|q| q.next_dispatch).min()?,
                waiting().map(|q| q.next_dispatch).max()?,
            ),
            (waiting().map(discounted).min()?, waiting().map(discounted).max()?),
        ])
    }
}

fn digest<T>(request: &Request<T>, place: (Option<u32>, Option<u32>)) -> Waiting<'_, T> {
    Waiting {
        place,
        account: request.account,
        work: request.work,
        arrived: request.arrived,
        // Until the dispatch, `started` repeats the arrival.
        started: (request.state != State::Waiting).then_some(request.started),
        item: &request.item,
    }
}
