//! The transitions of a request: pass, enqueue, dispatch, release, cancel. Each keeps the counters of set,
//! queue and account in step; [`QueueSet`] decides which transition applies.

use super::requests::{Id, State};
use super::{ESTIMATED_SERVICE, Lingering, OUT_OF_TURN_FRACTION, QueueSet, Queuing};
use crate::flowcontrol::seat_seconds::SeatSeconds;
use crate::flowcontrol::work_estimate::WorkEstimate;
use std::cmp::Reverse;
use std::time::Duration;

fn charge(work: &WorkEstimate) -> SeatSeconds {
    ESTIMATED_SERVICE.times(work.initial_seats) + work.final_work()
}

impl<T> QueueSet<T> {
    /// Lets a request execute that need not wait. The same as [`enqueue`](Self::enqueue) and
    /// [`dispatch`](Self::dispatch) when nothing else waits and there are seats for it, in less time.
    pub(super) fn pass(&mut self, now: Duration, index: u32, id: Id) {
        let r = self.r;
        let cost = charge(&self.requests.get(id).work);
        let queue = self.queues.entry(index);
        if !queue.is_active() {
            self.active_queues += 1;
            queue.next_dispatch = r;
        }
        let due = queue.next_dispatch.max(r);
        queue.next_dispatch = due + cost;
        // `next_to_serve` would have chosen this queue, so ties continue behind it.
        self.last_served = index;
        self.totals.dispatched_at = Some((r, due));
        self.run(now, id);
    }

    pub(super) fn enqueue(&mut self, now: Duration, index: u32, id: Id) {
        let r = self.r;
        let request = self.requests.get(id);
        let (seats, account, work) = (request.work.max_seats(), request.account, charge(&request.work));
        let queue = self.queues.entry(index);
        if !queue.is_active() {
            queue.next_dispatch = r;
            self.active_queues += 1;
        }
        // Copied out and back: the list lives in a queue and its links in the slab, which cannot both be borrowed
        // through `self`.
        let mut list = queue.waiting;
        self.requests.push_back(&mut list, id);
        queue.waiting = list;
        queue.waiting_seats += u64::from(seats);
        queue.waiting_work += work;
        self.queued_seats += u64::from(seats);
        self.totals.waiting += 1;
        self.totals.seats_waiting += u64::from(seats);
        let account = &mut self.accounts[account as usize];
        account.waiting += 1;
        account.seats_waiting += u64::from(seats);
        self.place(index);
        self.note_demand(now);
    }

    /// Takes a waiting request out of its queue.
    fn dequeue(&mut self, id: Id) {
        let request = self.requests.get(id);
        let (seats, account, work) = (request.work.max_seats(), request.account, charge(&request.work));
        let index = request.queue.expect("a request without queues does not wait");
        let queue = self.queues.at(index);
        let mut list = queue.waiting;
        self.requests.unlink(&mut list, id);
        queue.waiting = list;
        queue.waiting_seats -= u64::from(seats);
        queue.waiting_work = queue.waiting_work - work;
        self.queued_seats -= u64::from(seats);
        self.totals.waiting -= 1;
        self.totals.seats_waiting -= u64::from(seats);
        let account = &mut self.accounts[account as usize];
        account.waiting -= 1;
        account.seats_waiting -= u64::from(seats);
    }

    /// Puts a queue where it belongs in the order, after its oldest request or its next dispatch have
    /// changed. A request is not due before its arrival, so a queue that leaves seats unused gains no
    /// advantage for later.
    pub(super) fn place(&mut self, index: u32) {
        let queue = self.queues.at(index);
        // The old key is remembered, because the sets can only be searched by it.
        if let Some(finish) = queue.finish.take() {
            self.order.remove(&(finish, index));
            self.narrow_and_idle.remove(&(finish, index));
        }
        if let Some(first) = queue.waiting.first() {
            let request = self.requests.get(first);
            queue.next_dispatch = queue.next_dispatch.max(request.arrival_r);
            let finish = queue.next_dispatch + charge(&request.work);
            queue.finish = Some(finish);
            self.order.insert((finish, index));
            if queue.unfinished == 0 && request.work.max_seats() == 1 {
                self.narrow_and_idle.insert((finish, index));
            }
        }
    }

    /// True if that many more seats may be used. A request that is wider than the limit runs when nothing
    /// else does.
    pub(super) fn has_room(&self, seats: u32) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // Otherwise such a request would wait forever. It takes the level over its limit for a while.
            _ if seats > self.limit => self.totals.executing == 0,
            _ => self.totals.seats_in_use + seats <= self.limit,
        }
    }

    /// Starts as many waiting requests as possible.
    pub(super) fn dispatch(&mut self, now: Duration) {
        while let Some((index, id)) = self.next_to_serve() {
            let full = self.totals.seats_in_use >= self.limit && self.queuing != Queuing::Exempt;
            let seats = self.requests.get(id).work.max_seats();
            if full || !self.has_room(seats) {
                // Counted if seats were free but too few, which is upstream's meaning of the metric.
                if !full {
                    let account = self.requests.get(id).account;
                    self.accounts[account as usize].no_accommodation += 1;
                }
                let is_idle = self.queues.at(index).unfinished == 0;
                // Without success the order of the queues may still have changed.
                if self.reclaim(now, is_idle) || self.next_to_serve().is_some_and(|(next, _)| next != index) {
                    continue;
                }
                let Some((index, id)) = self.next_out_of_turn(now, seats) else {
                    return;
                };
                self.requests.get_mut(id).out_of_turn = true;
                self.out_of_turn_seats += 1;
                self.serve(now, index, id);
                continue;
            }
            self.serve(now, index, id);
        }
    }

    /// Dispatches the oldest request of a queue, and charges the queue for it.
    fn serve(&mut self, now: Duration, index: u32, id: Id) {
        // Before the width changes: the counters must fall by what they were raised by.
        self.dequeue(id);
        let limit = self.limit;
        let request = self.requests.get_mut(id);
        let cost = charge(&request.work);
        if request.work.final_seats > limit {
            // The limit may have been lowered since the estimate. The work stays the same, so the charge does, too.
            request.work = request.work.narrowed_to(limit);
        }
        self.last_served = index;
        self.run(now, id);
        // Still present: `run` has just counted the request in it.
        let due = self.queues.at(index).next_dispatch;
        self.totals.dispatched_at = Some((self.r, due));
        self.queues.at(index).next_dispatch += cost;
        self.place(index);
        self.dispatched.push(id);
    }

    /// A request that may run although the queue whose turn it is waits for more seats than are free, and its
    /// queue. Its seat is free, or taken from a request that computes. `seats` are those of the waiting request.
    ///
    /// A wide request at the head of the order keeps every other flow waiting until enough seats are free for
    /// it, which takes long while the seats are held by requests that compute: a few hundred large lists of one
    /// user delayed everybody's small GETs by 0.2 s. Therefore flows that have nothing unfinished may run
    /// one-seat requests out of turn, on at most a quarter of the seats and never on those that the wide request
    /// needs, so that a stream of them cannot starve it. They are charged as usual. Without requests that run
    /// longer than the hold time the order is upstream's.
    fn next_out_of_turn(&mut self, now: Duration, seats: u32) -> Option<(u32, Id)> {
        /// Queues that are held back and skipped at most; each takes a lookup.
        const MAX_SKIPPED: usize = 16;
        let oldest = self.requests.get(self.requests.first_executing()?);
        let is_held_up = now.saturating_sub(oldest.started) >= self.hold;
        let fraction = (self.limit / OUT_OF_TURN_FRACTION).max(1);
        if !is_held_up || self.out_of_turn_seats >= fraction.min(self.limit.saturating_sub(seats)) {
            return None;
        }
        let candidates = self.narrow_and_idle.iter().take(MAX_SKIPPED);
        let (index, id) = candidates
            .filter_map(|(_, index)| Some((*index, self.queues.get(*index)?.waiting.first()?)))
            .find(|(_, id)| !(self.held_back)(&self.requests.get(*id).item))?;
        while !self.has_room(1) {
            if !self.reclaim(now, true) {
                return None;
            }
        }
        Some((index, id))
    }

    /// The queue whose oldest request would finish first, and that request. Of several, the one after the
    /// queue that was served last. Queues whose oldest request is held back are skipped.
    fn next_to_serve(&mut self) -> Option<(u32, Id)> {
        let oldest = |index: u32| self.queues.get(index).and_then(|queue| queue.waiting.first());
        let may_run = |(_, index): &&(SeatSeconds, u32)| {
            oldest(*index).is_some_and(|id| !(self.held_back)(&self.requests.get(id).item))
        };
        let found = self.order.iter().find(may_run).copied();
        let is_first = found.as_ref() == self.order.first();
        let found = found.and_then(|(finish, lowest)| {
            let after = (finish, self.last_served.saturating_add(1));
            let mut equal = self.order.range(after..).take_while(|(other, _)| *other == finish);
            let index = equal.find(may_run).map_or(lowest, |(_, index)| *index);
            Some((index, oldest(index)?))
        });
        // Makes `next_event` poll again: no notification arrives when a request is no longer held back.
        self.skipped = !is_first;
        found
    }

    /// Lets a request that is in no list execute.
    pub(super) fn run(&mut self, now: Duration, id: Id) {
        self.requests.begin_executing(id, now);
        let request = self.requests.get(id);
        let (seats, account, queue) = (request.work.max_seats(), request.account, request.queue);
        if let Some(index) = queue {
            let queue = self.queues.at(index);
            queue.executing += 1;
            queue.unfinished += 1;
            queue.seats_in_use += seats;
            self.queued_seats += u64::from(seats);
        }
        self.totals.executing += 1;
        self.totals.dispatched += 1;
        self.totals.seats_in_use += seats;
        let account = &mut self.accounts[account as usize];
        account.executing += 1;
        account.seats_in_use += seats;
        self.note_demand(now);
    }

    /// Ends the execution of a request. Its seats become free now or after its additional latency.
    pub(super) fn release(&mut self, now: Duration, id: Id) {
        self.requests.end_executing(id);
        let request = self.requests.get_mut(id);
        request.state = State::Released;
        if std::mem::take(&mut request.out_of_turn) {
            self.out_of_turn_seats -= 1;
        }
        let (work, account, queue) = (request.work, request.account, request.queue);
        let uncharged = now.saturating_sub(request.holds_since);
        self.totals.executing -= 1;
        self.accounts[account as usize].executing -= 1;
        if let Some(index) = queue {
            let queue = self.queues.at(index);
            queue.executing -= 1;
            // The estimated work is replaced by the measured one.
            let really = SeatSeconds::of(f64::from(work.initial_seats), uncharged);
            // May go down: a request that was faster than the estimate lets its queue be served earlier.
            queue.next_dispatch = queue.next_dispatch + really - ESTIMATED_SERVICE.times(work.initial_seats);
            if !queue.is_active() {
                self.active_queues -= 1;
            }
            // Even without waiting requests: `place` then removes the queue from the order.
            self.place(index);
        }
        if work.additional_latency.is_zero() {
            self.free(now, queue, account, work.max_seats());
        } else {
            self.lingering.push(Reverse(Lingering {
                until: now + work.additional_latency,
                seats: work.max_seats(),
                queue,
                account,
            }));
        }
    }

    pub(super) fn free(&mut self, now: Duration, queue: Option<u32>, account: u32, seats: u32) {
        self.totals.seats_in_use -= seats;
        self.accounts[account as usize].seats_in_use -= seats;
        if let Some(index) = queue {
            self.queues.at(index).seats_in_use -= seats;
            self.queued_seats -= u64::from(seats);
            self.queues.forget_if_empty(index);
        }
        self.note_demand(now);
    }

    /// Takes the seats of the request that has held them for the longest time, if that is long enough. Such a
    /// request waits for its client or for another server and needs no seat here; without this rule, clients
    /// that read slowly could keep a level occupied. False if there is no such request. Each request is
    /// looked at once per hold time.
    ///
    /// `for_idle_queue`: the seats are for a queue without unfinished requests. It gets them even from a
    /// request that computes, so that a flow need not wait for a flood of computations of others.
    pub(super) fn reclaim(&mut self, now: Duration, for_idle_queue: bool) -> bool {
        while let Some(oldest) = self.requests.first_executing() {
            let request = self.requests.get(oldest);
            let since = match for_idle_queue {
                true => request.started,
                false => request.holds_since,
            };
            // The list is ordered by `holds_since`, so nobody behind it has held seats for longer.
            if now.saturating_sub(since) < self.hold {
                return false;
            }
            if for_idle_queue || !(self.keeps_seats)(&request.item) {
                self.release(now, oldest);
                return true;
            }
            self.charge_held(now, oldest);
            // To the end of the list, so the loop ends after one pass at the latest.
            self.requests.hold_anew(oldest, now);
        }
        false
    }

    /// Charges a request's queue for the time since the last charge, and not only when the request ends:
    /// queues that have used seats for long are served after those that have not.
    fn charge_held(&mut self, now: Duration, id: Id) {
        let request = self.requests.get(id);
        let held = now.saturating_sub(request.holds_since);
        let used = SeatSeconds::of(f64::from(request.work.initial_seats), held);
        if let Some(index) = request.queue {
            let queue = self.queues.at(index);
            queue.next_dispatch += used;
            self.place(index);
        }
    }

    pub(super) fn cancel(&mut self, now: Duration, id: Id) {
        let index = self
            .requests
            .get(id)
            .queue
            .expect("a request without queues does not wait");
        self.dequeue(id);
        self.totals.rejected += 1;
        self.totals.cancelled += 1;
        if !self.queues.at(index).is_active() {
            self.active_queues -= 1;
        }
        self.place(index);
        self.queues.forget_if_empty(index);
        self.note_demand(now);
    }
}
