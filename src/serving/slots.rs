//! Connection limits: admits new connections, and chooses the one to evict when a limit is reached.
//!
//! A new connection never waits for an old one: if there is no free slot, an old connection is evicted. The
//! entry point is [`Slots::enter`]. Connections belong to one of four classes, listed here in eviction order:
//!
//! ```text
//! HalfOpen ──TLS done──▶ Unauthenticated ──first authenticated request──▶ Authenticated
//! Local (accepted from loopback) ────────────────────────────▶ Authenticated
//! ```
//!
//! Each class has a guaranteed number of slots. A newcomer whose class is below its guarantee may evict from
//! any class that is above its own guarantee; otherwise it may evict only from its own class and those before
//! it. Hence unauthenticated clients can never take the slots reserved for loopback and for authenticated
//! callers, and authenticated callers can never take all the slots that others need in order to authenticate.
//! Within a class, the owner (address or user) with the most connections loses the one that has been idle
//! longest ([`pool`]).
//!
//! A client certificate alone does not make a connection `Authenticated`, because it is not verified before
//! the first request.

mod pool;

pub(super) use pool::Owner;

use super::activity::{Activity, signals};
use super::limits::Limits;
use crate::request::peer::AuthenticationObserver;
use crate::sync::{Mutex, MutexGuard};
use pool::Pool;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;

/// Connection classes in eviction order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The TLS handshake is not complete.
    HalfOpen,
    /// No request has been authenticated yet.
    Unauthenticated,
    /// From loopback; no request has been authenticated yet.
    Local,
    /// A request has been authenticated.
    Authenticated,
}

const CLASSES: [Class; 4] = [
    Class::HalfOpen,
    Class::Unauthenticated,
    Class::Local,
    Class::Authenticated,
];

/// Limits on numbers of connections.
#[derive(Clone, Copy, Debug)]
struct ClassLimits {
    all: usize,
    /// Slots guaranteed to each class, regardless of the others.
    guaranteed: [usize; 4],
    /// Maximum number of slots of each class.
    max: [usize; 4],
    /// Maximum number of slots of one address, per class.
    per_address: [usize; 4],
}

impl ClassLimits {
    fn new(limits: &Limits) -> Self {
        // At least one slot per class.
        let all = limits.max_connections.max(CLASSES.len());
        let authenticated = limits
            .reserved_connections
            .unwrap_or(all / 4)
            .min(all / 2)
            .clamp(1, all - 3);
        let (half_open, open, local) = (all / 8, (all / 16).max(1), (all / 16).max(1));
        let max_half_open = limits.max_half_open.unwrap_or((all / 4).min(4096)).clamp(1, all);
        let per_address = limits.max_per_address.unwrap_or(all / 4).max(1);
        Self {
            all,
            guaranteed: [half_open.clamp(1, max_half_open), open, local, authenticated],
            // From any number of addresses, unauthenticated connections cannot take the slots reserved for others.
            max: [max_half_open, all - authenticated - local, all, all],
            per_address: [per_address, per_address, all, all],
        }
    }
}

/// The connection slots of a server.
#[derive(Debug)]
pub(super) struct Slots {
    bounds: ClassLimits,
    state: Mutex<State>,
    /// Number of evicted connections that have not ended yet.
    leaving: watch::Sender<usize>,
    evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    pools: [Pool; 4],
    entries: HashMap<u64, (Class, Owner)>,
    evicted: HashSet<u64>,
}

/// A connection's slot, released on drop.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

/// Receives the authentication result of a connection's requests and promotes the connection at the first
/// one.
#[derive(Debug)]
struct PromoteOnAuth {
    slots: Arc<Slots>,
    id: u64,
    done: AtomicBool,
}

// === impl Slots ===

impl Slots {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            bounds: ClassLimits::new(limits),
            state: Mutex::default(),
            leaving: watch::Sender::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Number of evictions so far.
    pub(super) fn evicted(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Waits while too many evicted connections have not ended yet, because their sockets are still open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn settled(&self) {
        // Evicted connections still hold a socket each, so accepting must not outrun their end.
        let max = self.bounds.all / 8 + 1;
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.leaving.subscribe().wait_for(|leaving| *leaving < max).await;
    }

    /// Admits a connection that was just accepted, evicting another one if necessary. `None` if none may be
    /// evicted.
    pub(super) fn enter(self: &Arc<Self>, remote: IpAddr, is_local: bool, activity: &Arc<Activity>) -> Option<Slot> {
        let class = if is_local { Class::Local } else { Class::HalfOpen };
        let owner = Owner::of(remote);
        let mut state = self.lock();
        // First the limits of the class and the address: their victim may already free the slot needed below.
        self.make_room_in_class(&mut state, class, &owner);
        if state.entries.len() >= self.bounds.all {
            let victim = self.victim_for(&state, class)?;
            self.evict(&mut state, victim);
        }
        state.last += 1;
        let id = state.last;
        state.put(id, class, owner, Arc::clone(activity));
        Some(Slot {
            slots: Arc::clone(self),
            id,
        })
    }

    /// Evicts a connection if the class, or the owner within the class, has reached its limit.
    fn make_room_in_class(&self, state: &mut State, class: Class, owner: &Owner) {
        let (at, pool) = (class as usize, &state.pools[class as usize]);
        let victim = if pool.of(owner) >= self.bounds.per_address[at] {
            pool.victim(Some(owner))
        } else if pool.len() >= self.bounds.max[at] {
            pool.victim(None)
        } else {
            None
        };
        if let Some(victim) = victim {
            self.evict(state, victim);
        }
    }

    /// The connection to evict for a newcomer of this class when all slots are taken.
    fn victim_for(&self, state: &State, newcomer: Class) -> Option<u64> {
        let count = |class: Class| state.pools[class as usize].len();
        let guaranteed = |class: Class| self.bounds.guaranteed[class as usize];
        let within = count(newcomer) < guaranteed(newcomer);
        let gives_way = |class: &Class| count(*class) > guaranteed(*class);
        let mut classes = CLASSES
            .into_iter()
            .filter(|c| within || (*c as usize) <= newcomer as usize);
        // If no class exceeds its guarantee, the newcomer's own class gives way.
        let class = classes.find(gives_way).or((!within).then_some(newcomer))?;
        state.pools[class as usize].victim(None)
    }

    fn evict(&self, state: &mut State, id: u64) {
        // The slot is free at once; the connection ends when it handles the signal, for which `settled`
        // waits.
        if let Some(activity) = state.take(id) {
            state.evicted.insert(id);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            self.leaving.send_modify(|n| *n += 1);
            activity.signal(signals::KILL);
        }
    }

    fn leave(&self, id: u64) {
        let mut state = self.lock();
        state.take(id);
        if state.evicted.remove(&id) {
            self.leaving.send_modify(|n| *n -= 1);
        }
    }

    /// Moves a connection to a later class and a new owner. The total number of connections stays the same.
    fn promote(&self, id: u64, to: Class, owner: impl FnOnce(Owner) -> Owner) {
        let mut state = self.lock();
        // Missing if the connection was evicted meanwhile.
        let Some((class, was)) = state.entries.get(&id).cloned() else {
            return;
        };
        // A connection from loopback stays `Local` when its handshake ends.
        if (to as usize) <= class as usize {
            return;
        }
        // Out of its class first, so that it cannot be chosen as its own victim.
        let Some(activity) = state.take(id) else { return };
        let owner = owner(was);
        self.make_room_in_class(&mut state, to, &owner);
        state.put(id, to, owner, activity);
    }
}

// === impl State ===

impl State {
    fn put(&mut self, id: u64, class: Class, owner: Owner, activity: Arc<Activity>) {
        self.pools[class as usize].insert(id, &owner, activity);
        self.entries.insert(id, (class, owner));
    }

    fn take(&mut self, id: u64) -> Option<Arc<Activity>> {
        let (class, owner) = self.entries.remove(&id)?;
        self.pools[class as usize].remove(id, &owner)
    }
}

// === impl Slot ===

impl Slot {
    /// Called when the TLS handshake is complete.
    pub(super) fn handshake_done(&self) {
        self.slots.promote(self.id, Class::Unauthenticated, |address| address);
    }

    /// The observer to notify when a request of the connection is authenticated.
    pub(super) fn observer(&self) -> Arc<dyn AuthenticationObserver> {
        Arc::new(PromoteOnAuth {
            slots: Arc::clone(&self.slots),
            id: self.id,
            done: AtomicBool::new(false),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.leave(self.id);
    }
}

impl AuthenticationObserver for PromoteOnAuth {
    fn authenticated(&self, user: &str) {
        // The plain load keeps the atomic write off the path of all requests but the first.
        if self.done.load(Ordering::Relaxed) || self.done.swap(true, Ordering::Relaxed) {
            return;
        }
        self.slots
            .promote(self.id, Class::Authenticated, |_| Owner::User(user.into()));
    }
}

#[cfg(test)]
mod tests;
