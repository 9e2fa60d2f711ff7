//! [`QueueSet`]: the queues of one priority level, with fair queuing on virtual time (upstream's
//! `k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset`).
//!
//! A request of a flow joins the shortest queue of the flow's hand ([`super::shuffle_sharding`]). A progress
//! meter R counts the seat-seconds that each active queue could have used so far. Each queue has a reading
//! of the meter at which its next request is due; the queue whose next request would finish first is served.
//! A request is charged with an estimate when it starts and with the difference when it ends, so a queue that
//! used more than its part waits longer.
//!
//! The set has no clock and does no I/O: [`start`](QueueSet::start), [`finish`](QueueSet::finish) and
//! [`advance`](QueueSet::advance) take the time, and [`take_dispatched`](QueueSet::take_dispatched) returns
//! the waiting requests that may run. Every operation costs at most the logarithm of the number of waiting
//! requests and held seats, and a step for each queue that is [skipped](QueueSet::holding_back_if); removing
//! a waiting request in the middle of its queue is constant.

mod dispatch;
mod inspect;
mod queue;
mod requests;
mod stats;

pub(crate) use inspect::{QueueDigest, Waiting};
pub(crate) use requests::Id;
pub(crate) use stats::{FlowSchemaStats, Totals};

use super::integrator::{Integrator, Observed};
use super::seat_seconds::SeatSeconds;
use super::shuffle_sharding::Dealer;
use super::work_estimate::WorkEstimate;
use queue::QueueMap;
use requests::{Requests, State};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

/// The guess at the work of a request per seat, with which it is charged when it starts: 3 ms.
const ESTIMATED_SERVICE: SeatSeconds = SeatSeconds::of_one(Duration::from_millis(3));

/// The part of the seats that may be given out of turn; see [`QueueSet::next_out_of_turn`].
const OUT_OF_TURN_FRACTION: u32 = 4;

/// Interval at which requests that are held back are checked again: nothing notifies the set when a caller has
/// read its responses.
const ASKED_AGAIN: Duration = Duration::from_millis(20);

/// The treatment of requests beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queuing {
    /// There is no limit.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait in queues of limited length.
    Queues {
        /// Deals a flow its queues.
        dealer: Dealer,
        /// Maximum number of waiting requests per queue.
        length_limit: u32,
    },
}

/// Why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// All queues of the flow are full.
    QueueFull,
    /// The level has no queues, and too few seats are free.
    ConcurrencyLimit,
}

/// The requests of one priority level. `T` is the caller's data of a request.
pub(crate) struct QueueSet<T> {
    queuing: Queuing,
    limit: u32,
    /// After this time a request gives its seats back if others need them.
    hold: Duration,
    /// Exempts requests from that.
    // Function pointers instead of type parameters: the set stays generic over `T` only.
    keeps_seats: fn(&T) -> bool,
    /// Requests that are not dispatched while this holds.
    held_back: fn(&T) -> bool,
    /// True if the last dispatch skipped a queue for that reason.
    skipped: bool,
    /// Queues in use; the others hold nothing.
    queues: QueueMap,
    /// Queues with waiting requests, by the reading at which their oldest request would finish.
    order: BTreeSet<(SeatSeconds, u32)>,
    /// Those of `order` that have no unfinished requests and whose oldest request needs one seat.
    narrow_and_idle: BTreeSet<(SeatSeconds, u32)>,
    /// Seats of executing requests that were served out of turn.
    out_of_turn_seats: u32,
    requests: Requests<T>,
    /// Ends of the additional latencies.
    lingering: BinaryHeap<Reverse<Lingering>>,
    dispatched: Vec<Id>,
    /// The progress meter, and when it was read last.
    r: SeatSeconds,
    read_at: Duration,
    /// The queue that was served last.
    last_served: u32,
    /// The card of the next request's hand to look at first.
    next_card: usize,
    /// Queues with waiting or executing requests.
    active_queues: u32,
    /// Seats used or waited for in queues.
    queued_seats: u64,
    totals: Totals,
    accounts: Vec<FlowSchemaStats>,
    demand: Integrator,
}

/// Seats that remain occupied after their request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lingering {
    until: Duration,
    seats: u32,
    queue: Option<u32>,
    account: u32,
}

/// A request that was admitted or put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// It may run. [`QueueSet::finish`] must be called at its end.
    Executing(Id),
    /// It waits, and is reported by [`QueueSet::take_dispatched`] when it may run. [`QueueSet::finish`] must
    /// be called at its end or to give up.
    Waiting(Id),
}

impl<T> QueueSet<T> {
    /// An empty set of `limit` seats. A request gives its seats back after `hold`, if others need them.
    pub(crate) fn new(now: Duration, queuing: Queuing, limit: u32, hold: Duration) -> Self {
        Self {
            queuing,
            limit,
            hold,
            keeps_seats: |_| false,
            held_back: |_| false,
            skipped: false,
            queues: QueueMap::default(),
            order: BTreeSet::new(),
            narrow_and_idle: BTreeSet::new(),
            out_of_turn_seats: 0,
            requests: Requests::new(),
            lingering: BinaryHeap::new(),
            dispatched: Vec::new(),
            r: SeatSeconds::ZERO,
            read_at: now,
            last_served: 0,
            next_card: 0,
            active_queues: 0,
            queued_seats: 0,
            totals: Totals::default(),
            accounts: Vec::new(),
            demand: Integrator::new(now),
        }
    }

    /// Exempts requests from giving their seats back while `keeps_seats` holds.
    pub(crate) fn keeping_seats_if(mut self, keeps_seats: fn(&T) -> bool) -> Self {
        self.keeps_seats = keeps_seats;
        self
    }

    /// Lets requests wait while `held_back` holds, which is checked again every 20 ms. The queues
    /// behind them are served meanwhile. A set without queues ignores it.
    pub(crate) fn holding_back_if(mut self, held_back: fn(&T) -> bool) -> Self {
        self.held_back = held_back;
        self
    }

    /// Changes the configuration. Queues beyond a smaller number get no more requests and drain.
    pub(crate) fn reconfigure(&mut self, now: Duration, queuing: Queuing, limit: u32) {
        self.sync(now);
        self.queuing = queuing;
        self.limit = limit;
        self.dispatch(now);
    }

    /// Begins a request of the flow with that hash. `account` numbers the flow schema, for statistics.
    ///
    /// # Errors
    /// The request is rejected, and `item` is dropped.
    pub(crate) fn start(
        &mut self,
        now: Duration,
        work: WorkEstimate,
        hash: u64,
        account: u32,
        item: T,
    ) -> Result<Started, Rejected> {
        self.sync(now);
        let needed = (account as usize + 1).max(self.accounts.len());
        self.accounts.resize(needed, FlowSchemaStats::default());
        // The account must exist before anything below counts in it.
        let Queuing::Queues { dealer, length_limit } = self.queuing else {
            // One at a time: taking more seats back than needed would only harm others.
            while !self.has_room(work.max_seats()) {
                if !self.reclaim(now, false) {
                    self.totals.rejected += 1;
                    return Err(Rejected::ConcurrencyLimit);
                }
            }
            let id = self.requests.insert(work, None, account, now, self.r, item);
            self.run(now, id);
            return Ok(Started::Executing(id));
        };
        let fits = self.totals.waiting == 0 && self.totals.seats_in_use + work.max_seats() <= self.limit;
        if fits && !(self.held_back)(&item) {
            // No queue of the hand has work, so the first one that would be looked at is a shortest one.
            // One card instead of the whole hand, because this is the path of most requests.
            let index = dealer.card(hash, self.next_card(dealer.hand_size()));
            let id = self.requests.insert(work, Some(index), account, now, self.r, item);
            self.pass(now, index, id);
            return Ok(Started::Executing(id));
        }
        let index = self.shortest_queue(&dealer, hash);
        // Absent queues hold nothing.
        let length = self.queues.get(index).map_or(0, |queue| queue.waiting.len);
        let held_back = (self.held_back)(&item);
        // As upstream's `rejectOrEnqueueToBoundLocked`, a full queue still takes requests while seats are free.
        // Otherwise a wide request at the head would make its queue reject requests that could run.
        while length >= length_limit && (held_back || self.totals.seats_in_use >= self.limit) {
            if held_back || !self.reclaim(now, false) {
                self.totals.rejected += 1;
                return Err(Rejected::QueueFull);
            }
        }
        let id = self.requests.insert(work, Some(index), account, now, self.r, item);
        self.enqueue(now, index, id);
        self.dispatch(now);
        if self.requests.get(id).state == State::Waiting {
            return Ok(Started::Waiting(id));
        }
        // The caller learns it from the return value.
        // From the end: it was dispatched just now.
        if let Some(at) = self.dispatched.iter().rposition(|d| *d == id) {
            self.dispatched.remove(at);
        }
        Ok(Started::Executing(id))
    }

    /// Ends a request: one that executes releases its seats, after its additional latency; one that waits
    /// leaves its queue. Returns the caller's data.
    pub(crate) fn finish(&mut self, now: Duration, id: Id) -> T {
        self.sync(now);
        match self.requests.get(id).state {
            State::Waiting => self.cancel(now, id),
            State::Executing => {
                // Before the release, which forgets the queue if nothing is left in it.
                self.leave_queue(id);
                self.release(now, id);
            }
            // Its seats were returned by `reclaim`.
            State::Released => self.leave_queue(id),
        }
        let request = self.requests.remove(id);
        // It may be among the dispatched requests that the caller has not taken yet.
        self.dispatched.retain(|d| *d != id);
        self.dispatch(now);
        request.item
    }

    fn leave_queue(&mut self, id: Id) {
        if let Some(index) = self.requests.get(id).queue {
            let queue = self.queues.at(index);
            queue.unfinished -= 1;
            if queue.unfinished == 0 {
                self.place(index);
            }
            self.queues.forget_if_empty(index);
        }
    }

    /// Runs the work that is due at `now`. Needed while requests wait; see [`next_event`](Self::next_event).
    pub(crate) fn advance(&mut self, now: Duration) {
        self.sync(now);
        self.dispatch(now);
    }

    /// The next time at which seats become free by themselves, while requests wait.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        // Seats that become free for nobody need no timer: the next call returns them.
        if self.totals.waiting == 0 {
            return None;
        }
        let lingering = self.lingering.peek().map(|Reverse(l)| l.until);
        let held = self
            .requests
            .oldest_executing()
            .map(|r| r.holds_since.saturating_add(self.hold));
        let asked_again = self.skipped.then(|| self.read_at.saturating_add(ASKED_AGAIN));
        lingering.into_iter().chain(held).chain(asked_again).min()
    }

    /// True if [`take_dispatched`](Self::take_dispatched) has something to report.
    pub(crate) fn has_dispatched(&self) -> bool {
        !self.dispatched.is_empty()
    }

    /// Moves the waiting requests that may run into `into`.
    pub(crate) fn take_dispatched(&mut self, into: &mut Vec<Id>) {
        into.append(&mut self.dispatched);
    }

    /// The caller's data for a request.
    pub(crate) fn item_mut(&mut self, id: Id) -> &mut T {
        &mut self.requests.get_mut(id).item
    }

    /// True until the request is dispatched.
    pub(crate) fn is_waiting(&self, id: Id) -> bool {
        self.requests.get(id).state == State::Waiting
    }

    /// True if the request is or was in a queue.
    pub(crate) fn is_queued(&self, id: Id) -> bool {
        self.requests.get(id).queue.is_some()
    }

    /// Ends a period of the seat demand, and returns its statistics.
    pub(crate) fn reset_demand(&mut self, now: Duration) -> Observed {
        self.demand.reset(now)
    }

    /// Moves the progress meter to `now` and returns the seats whose additional latency has ended.
    fn sync(&mut self, now: Duration) {
        while let Some(Reverse(due)) = self.lingering.peek().copied()
            && due.until <= now
        {
            self.lingering.pop();
            // In steps: the meter runs at another speed after each of them.
            self.read_meter(due.until);
            self.free(due.until, due.queue, due.account, due.seats);
        }
        self.read_meter(now);
    }

    fn read_meter(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.read_at);
        self.read_at = self.read_at.max(now);
        if self.active_queues > 0 && !passed.is_zero() {
            // Seats beyond the demand are not usable, so the meter must not count them: queues would gain credit from
            // an idle level.
            let usable = self.queued_seats.min(u64::from(self.limit));
            self.r += SeatSeconds::of(usable as f64 / f64::from(self.active_queues), passed);
        }
        self.totals.r = self.r;
    }

    fn note_demand(&mut self, now: Duration) {
        let demand = u64::from(self.totals.seats_in_use) + self.totals.seats_waiting;
        self.demand.set(now, demand as f64);
    }

    /// The card of a hand to look at first: another one each time, which spreads the requests of equally long
    /// queues.
    fn next_card(&mut self, hand: usize) -> usize {
        // A reconfiguration may have made hands smaller.
        let at = if self.next_card < hand { self.next_card } else { 0 };
        self.next_card = at + 1;
        at
    }

    fn shortest_queue(&mut self, dealer: &Dealer, hash: u64) -> u32 {
        let hand = dealer.deal(hash);
        let cards = hand.cards();
        let offset = self.next_card(cards.len());
        let rotated = cards[offset..].iter().chain(&cards[..offset]);
        // By work, not by length: one wide request can outweigh many narrow ones (upstream's `shuffleShardLocked`).
        let work = |card: &&u32| self.queues.get(**card).map_or(SeatSeconds::ZERO, |q| q.waiting_work);
        *rotated.min_by_key(work).expect("a hand has at least one card")
    }
}

#[cfg(test)]
mod tests;
