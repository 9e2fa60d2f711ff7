//! The requests of a set: a slab with intrusive lists, so that a request leaves the middle of its queue in
//! constant time and without an allocation. [`QueueSet`](super::QueueSet) owns the meaning of the states.

use crate::flowcontrol::seat_seconds::SeatSeconds;
use crate::flowcontrol::work_estimate::WorkEstimate;
use std::time::Duration;

/// A request of one set. Valid until [`QueueSet::finish`](super::QueueSet::finish), which the owner calls
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In its queue's list.
    Waiting,
    /// In the list of executing requests.
    Executing,
    /// It still runs, but gave its seats back because it took too long.
    Released,
}

pub(super) struct Request<T> {
    pub state: State,
    pub work: WorkEstimate,
    pub queue: Option<u32>,
    pub account: u32,
    pub arrived: Duration,
    /// The meter's reading at the arrival: the request is not due before.
    pub arrival_r: SeatSeconds,
    pub started: Duration,
    /// When it started, or was last found to have a reason to keep its seats.
    pub holds_since: Duration,
    /// It executes, and was served before its turn.
    pub out_of_turn: bool,
    pub item: T,
    prev: Option<Id>,
    next: Option<Id>,
}

/// A doubly linked list through the slab.
#[derive(Clone, Copy, Default)]
pub(super) struct List {
    head: Option<Id>,
    tail: Option<Id>,
    pub len: u32,
}

enum Slot<T> {
    Taken(Request<T>),
    Free { next: Option<Id> },
}

pub(super) struct Requests<T> {
    slots: Vec<Slot<T>>,
    free: Option<Id>,
    /// Executing requests, by `holds_since`.
    executing: List,
}

impl List {
    pub(crate) fn first(&self) -> Option<Id> {
        self.head
    }
}

impl<T> Requests<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: None,
            executing: List::default(),
        }
    }

    pub(crate) fn insert(
        &mut self,
        work: WorkEstimate,
        queue: Option<u32>,
        account: u32,
        now: Duration,
        r: SeatSeconds,
        item: T,
    ) -> Id {
        let slot = Slot::Taken(Request {
            state: State::Waiting,
            work,
            queue,
            account,
            arrived: now,
            arrival_r: r,
            started: now,
            holds_since: now,
            out_of_turn: false,
            item,
            prev: None,
            next: None,
        });
        match self.free {
            None => {
                // By an eighth instead of by half: thousands of requests may wait.
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact(self.slots.len() / 8 + 16);
                }
                self.slots.push(slot);
                Id((self.slots.len() - 1) as u32)
            }
            Some(id) => {
                // Always the case: the free list links free slots only.
                if let Slot::Free { next } = self.slots[id.0 as usize] {
                    self.free = next;
                }
                self.slots[id.0 as usize] = slot;
                id
            }
        }
    }

    /// Takes a request out that is in no list.
    pub(crate) fn remove(&mut self, id: Id) -> Request<T> {
        // The index is reused by the next request. That is safe because the owner finishes an id once.
        let free = Slot::Free { next: self.free };
        self.free = Some(id);
        match std::mem::replace(&mut self.slots[id.0 as usize], free) {
            Slot::Taken(request) => request,
            Slot::Free { .. } => unreachable!("{TAKEN}"),
        }
    }

    pub(crate) fn get(&self, id: Id) -> &Request<T> {
        match &self.slots[id.0 as usize] {
            Slot::Taken(request) => request,
            Slot::Free { .. } => unreachable!("{TAKEN}"),
        }
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> &mut Request<T> {
        match &mut self.slots[id.0 as usize] {
            Slot::Taken(request) => request,
            Slot::Free { .. } => unreachable!("{TAKEN}"),
        }
    }

    pub(crate) fn push_back(&mut self, list: &mut List, id: Id) {
        match list.tail {
            None => list.head = Some(id),
            Some(tail) => self.get_mut(tail).next = Some(id),
        }
        let request = self.get_mut(id);
        (request.prev, request.next) = (list.tail, None);
        list.tail = Some(id);
        list.len += 1;
    }

    pub(crate) fn unlink(&mut self, list: &mut List, id: Id) {
        let request = self.get(id);
        let (prev, next) = (request.prev, request.next);
        match prev {
            None => list.head = next,
            Some(prev) => self.get_mut(prev).next = next,
        }
        match next {
            None => list.tail = prev,
            Some(next) => self.get_mut(next).prev = prev,
        }
        list.len -= 1;
    }

    /// Moves a request that is in no list to those that execute.
    pub(crate) fn begin_executing(&mut self, id: Id, now: Duration) {
        let request = self.get_mut(id);
        request.state = State::Executing;
        (request.started, request.holds_since) = (now, now);
        // A copy, here and below: the ends of the list and the requests that it links are both in `self`.
        let mut list = self.executing;
        self.push_back(&mut list, id);
        self.executing = list;
    }

    pub(crate) fn end_executing(&mut self, id: Id) {
        let mut list = self.executing;
        self.unlink(&mut list, id);
        self.executing = list;
    }

    /// Lets an executing request hold its seats from `now`.
    pub(crate) fn hold_anew(&mut self, id: Id, now: Duration) {
        let mut list = self.executing;
        // Unlink and append keep the list ordered by `holds_since`, on which `reclaim` relies.
        self.unlink(&mut list, id);
        self.get_mut(id).holds_since = now;
        self.push_back(&mut list, id);
        self.executing = list;
    }

    /// The executing request that holds its seats for the longest time.
    pub(crate) fn first_executing(&self) -> Option<Id> {
        self.executing.head
    }

    pub(crate) fn oldest_executing(&self) -> Option<&Request<T>> {
        self.first_executing().map(|id| self.get(id))
    }

    /// The requests of a list, in order.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = &Request<T>> {
        let mut next = list.head;
        std::iter::from_fn(move || {
            let request = self.get(next?);
            next = request.next;
            Some(request)
        })
    }

    /// All requests that execute or have given their seats back.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Request<T>> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Taken(request) if request.state != State::Waiting => Some(request),
            _ => None,
        })
    }
}

const TAKEN: &str = "an id is used only until its request is finished";
