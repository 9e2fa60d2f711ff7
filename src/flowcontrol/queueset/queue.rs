//! [`Queue`]: one queue of a level; and [`QueueMap`]: those that hold something. Plain data; which queue a request
//! joins and which is served next is decided in the parent module.

use super::requests::List;
use crate::flowcontrol::seat_seconds::SeatSeconds;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Requests of a few flows in order of arrival.
#[derive(Default)]
pub(super) struct Queue {
    pub waiting: List,
    /// Seats and work of the waiting requests.
    pub waiting_seats: u64,
    pub waiting_work: SeatSeconds,
    pub executing: u32,
    /// Requests that execute, or have given their seats back and have not finished yet.
    pub unfinished: u32,
    /// Seats in use, additional latency included.
    pub seats_in_use: u32,
    /// The meter's reading at which the next request is due. Meaningful while requests wait or execute.
    pub next_dispatch: SeatSeconds,
    /// The queue's place in the order of queues; `None` if nothing waits.
    pub finish: Option<SeatSeconds>,
}

impl Queue {
    /// True if it has waiting or executing requests: it gets a part of the seats.
    pub(crate) fn is_active(&self) -> bool {
        self.waiting.len > 0 || self.executing > 0
    }

    /// True if the queue is empty. Its other state then does not affect the next request.
    fn is_empty(&self) -> bool {
        !self.is_active() && self.seats_in_use == 0 && self.unfinished == 0
    }
}

/// Queues with a lower index are in an array instead of a map: a request looks its queue up several times.
const PLACES: u32 = 256;

/// The queues that hold something. A level may be configured with millions of queues, of which few are ever
/// in use.
#[derive(Default)]
pub(super) struct QueueMap {
    /// By index, as far as they have been used.
    near: Vec<Queue>,
    /// Those from [`PLACES`] on.
    far: HashMap<u32, Queue, BuildHasherDefault<Spread>>,
}

impl QueueMap {
    pub(crate) fn get(&self, index: u32) -> Option<&Queue> {
        match index < PLACES {
            true => self.near.get(index as usize),
            false => self.far.get(&index),
        }
    }

    pub(crate) fn entry(&mut self, index: u32) -> &mut Queue {
        if index >= PLACES {
            return self.far.entry(index).or_default();
        }
        let at = index as usize;
        if at >= self.near.len() {
            // Up to the highest index in use, so a level with few queues stays small.
            self.near.resize_with(at + 1, Queue::default);
        }
        &mut self.near[at]
    }

    /// A queue that is known to hold something.
    pub(crate) fn at(&mut self, index: u32) -> &mut Queue {
        let found = match index < PLACES {
            true => self.near.get_mut(index as usize),
            false => self.far.get_mut(&index),
        };
        found.expect("a queue stays in the map while it has requests or seats")
    }

    pub(crate) fn forget_if_empty(&mut self, index: u32) {
        // An empty queue of the array may stay: its `next_dispatch` is set anew when it becomes active.
        if index >= PLACES && self.get(index).is_some_and(Queue::is_empty) {
            self.far.remove(&index);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        let near = (0..).zip(&self.near).filter(|(_, queue)| !queue.is_empty());
        near.chain(self.far.iter().map(|(index, queue)| (*index, queue)))
    }
}

/// Multiplies the index. Which indices occur follows from the configuration and from hashes that the controller
/// keys, so callers cannot choose indices that collide, and a stronger hash would prevent nothing.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        // The map needs well-mixed upper bits; the odd multiplier keeps different low bits different.
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
