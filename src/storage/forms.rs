//! Cache of alternative encodings of stored objects (protobuf, CBOR, watch frames, other API versions): computed on
//! first use, shared by all readers, and bounded by a [`Budget`].
//!
//! Every [`Entry`] and [`Event`] has a [`Forms`], which allocates a slot when the first encoding is cached. The
//! budget's [`Shelf`] tracks all non-empty slots and evicts with the clock (second-chance) algorithm: oldest first,
//! skipping slots used since the previous pass. A slot dropped with its entry returns its bytes itself.

use super::budget::Budget;
use super::{Entry, Event, EventType};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Identifies an encoding. The caller assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An encoding of the object, by media type number.
    Object(u8),
    /// A watch frame: event type and media type number.
    Frame(EventType, u8),
    /// The object, or the event of the given type, converted to another API version.
    Version(usize, Option<EventType>),
}

/// A cached value.
#[derive(Clone)]
enum Made {
    Bytes(Bytes),
    Entry(Arc<Entry>),
    Event(Arc<Event>),
}

impl Made {
    fn weight(&self) -> usize {
        /// Overhead of a cached value: its slot, its place in the slot and in the shelf, and reference counts.
        const BESIDE: usize = size_of::<Slot>() + size_of::<(Form, Made)>() + 64;
        BESIDE
            + match self {
                Self::Bytes(b) => b.len(),
                Self::Entry(e) => e.footprint(),
                Self::Event(e) => e.entry.footprint() + size_of::<Event>(),
            }
    }
}

/// The cached encodings of one entry or event.
#[derive(Default)]
pub struct Forms(OnceLock<Arc<Slot>>);

struct Slot {
    budget: Arc<Budget>,
    kept: Mutex<Vec<(Form, Made)>>,
    /// Reference bit of the clock algorithm: used since the last pass.
    used: AtomicBool,
}

/// The encoding cache: all non-empty slots.
#[derive(Default)]
pub struct Shelf {
    bytes: AtomicUsize,
    /// Non-empty slots whose entry still exists.
    live: AtomicUsize,
    slots: Mutex<VecDeque<Weak<Slot>>>,
    made: AtomicU64,
    reused: AtomicU64,
    evicted: AtomicU64,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panic message: one form number was used for two types of value.
const ONE_TYPE: &str = "a form has one type";

impl Forms {
    /// Returns the cached bytes, or computes and caches them. Concurrent callers for the same entry block until the
    /// first has finished. Without a budget nothing is cached.
    pub fn bytes(&self, budget: Option<&Arc<Budget>>, form: Form, make: impl FnOnce() -> Bytes) -> Bytes {
        match self.get_or_make(budget, form, || Made::Bytes(make())) {
            Made::Bytes(bytes) => bytes,
            _ => unreachable!("{ONE_TYPE}"),
        }
    }

    /// As [`bytes`](Self::bytes), for an entry.
    pub fn entry(&self, budget: Option<&Arc<Budget>>, form: Form, make: impl FnOnce() -> Entry) -> Arc<Entry> {
        match self.get_or_make(budget, form, || Made::Entry(Arc::new(make()))) {
            Made::Entry(entry) => entry,
            _ => unreachable!("{ONE_TYPE}"),
        }
    }

    /// As [`bytes`](Self::bytes), for an event.
    pub fn event(&self, budget: Option<&Arc<Budget>>, form: Form, make: impl FnOnce() -> Event) -> Arc<Event> {
        match self.get_or_make(budget, form, || Made::Event(Arc::new(make()))) {
            Made::Event(event) => event,
            _ => unreachable!("{ONE_TYPE}"),
        }
    }

    fn get_or_make(&self, budget: Option<&Arc<Budget>>, form: Form, make: impl FnOnce() -> Made) -> Made {
        let Some(budget) = budget else { return make() };
        let slot = self.0.get_or_init(|| {
            Arc::new(Slot {
                budget: budget.clone(),
                kept: Mutex::default(),
                used: AtomicBool::new(false),
            })
        });
        let shelf = &slot.budget.shelf;
        // Held while encoding, so that many watchers of one event encode it once.
        let mut kept = lock(&slot.kept);
        if let Some((_, made)) = kept.iter().find(|(f, _)| *f == form) {
            slot.used.store(true, Ordering::Relaxed);
            shelf.reused.fetch_add(1, Ordering::Relaxed);
            return made.clone();
        }
        let made = make();
        shelf.made.fetch_add(1, Ordering::Relaxed);
        let (weight, limit) = (made.weight(), slot.budget.encodings_limit());
        if weight > limit {
            return made;
        }
        let first = kept.is_empty();
        // Most slots hold one or two values: exact growth saves memory.
        kept.reserve_exact(1);
        kept.push((form, made.clone()));
        if first {
            shelf.live.fetch_add(1, Ordering::Relaxed);
        }
        shelf.bytes.fetch_add(weight, Ordering::Relaxed);
        // Released before eviction, which may want to clear this very slot.
        drop(kept);
        shelf.hold(first.then_some(slot), limit);
        made
    }
}

impl Clone for Forms {
    /// A clone belongs to another object and starts empty.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forms")
    }
}

impl Slot {
    /// Empties the slot and returns the number of values removed.
    fn clear(kept: &mut Vec<(Form, Made)>, shelf: &Shelf) -> usize {
        let gone = std::mem::take(kept);
        if gone.is_empty() {
            return 0;
        }
        let weight: usize = gone.iter().map(|(_, made)| made.weight()).sum();
        shelf.bytes.fetch_sub(weight, Ordering::Relaxed);
        shelf.live.fetch_sub(1, Ordering::Relaxed);
        gone.len()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        Self::clear(kept, &self.budget.shelf);
    }
}

impl Shelf {
    /// Bytes cached.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts of encodings computed, reused and evicted.
    pub fn counts(&self) -> (u64, u64, u64) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (read(&self.made), read(&self.reused), read(&self.evicted))
    }

    /// Adds a slot that was empty before, then evicts until the cache fits `limit`.
    fn hold(&self, slot: Option<&Arc<Slot>>, limit: usize) {
        if slot.is_none() && self.bytes() <= limit {
            return;
        }
        let mut slots = lock(&self.slots);
        if let Some(slot) = slot {
            // Dead slots are purged before they outnumber the live ones.
            if slots.len() > 2 * self.live.load(Ordering::Relaxed) + 64 {
                slots.retain(|s| s.strong_count() > 0);
            }
            slots.push_back(Arc::downgrade(slot));
        }
        // Two passes: the first may only clear reference bits.
        let mut turns = 2 * slots.len();
        while self.bytes() > limit && turns > 0 {
            turns -= 1;
            let Some(next) = slots.pop_front() else { break };
            let Some(slot) = next.upgrade() else { continue };
            if slot.used.swap(false, Ordering::Relaxed) {
                slots.push_back(next);
                continue;
            }
            match slot.kept.try_lock() {
                Ok(mut kept) => {
                    let gone = Slot::clear(&mut kept, self);
                    self.evicted.fetch_add(gone as u64, Ordering::Relaxed);
                }
                // Another thread is encoding into it; waiting here could deadlock.
                Err(_) => slots.push_back(next),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const A: Form = Form::Object(0);
    const B: Form = Form::Object(1);

    fn of(n: usize) -> impl FnOnce() -> Bytes {
        move || Bytes::from(vec![0; n])
    }

    #[test]
    fn encoding_is_computed_once_and_shared() {
        let (budget, forms, made) = (Budget::unlimited(), Forms::default(), Cell::new(0));
        let make = || {
            forms.bytes(Some(&budget), A, || {
                made.set(made.get() + 1);
                Bytes::from(vec![7; 100])
            })
        };
        let (first, second) = (make(), make());
        assert_eq!((first.as_ptr(), made.get()), (second.as_ptr(), 1));
        assert_eq!(
            forms.bytes(Some(&budget), B, of(3)).len(),
            3,
            "each form is encoded separately"
        );
        let read = budget.read();
        assert_eq!((read.made, read.reused, read.evicted), (2, 1, 0));
    }

    #[test]
    fn dropping_an_entry_frees_its_encodings() {
        let budget = Budget::unlimited();
        let forms = Forms::default();
        forms.bytes(Some(&budget), A, of(1000));
        assert!(budget.read().encodings >= 1000);
        drop(forms);
        assert_eq!(budget.read().encodings, 0);
    }

    #[test]
    fn eviction_keeps_the_limit_and_recently_used_slots() {
        let budget = Budget::new(usize::MAX, 100_000);
        let hot = Forms::default();
        hot.bytes(Some(&budget), A, of(900));
        let cold: Vec<Forms> = (0..1000).map(|_| Forms::default()).collect();
        for forms in &cold {
            forms.bytes(Some(&budget), A, of(900));
            hot.bytes(Some(&budget), A, || panic!("a recently used encoding is not evicted"));
            assert!(budget.read().encodings <= 100_000);
        }
        let read = budget.read();
        assert!(read.evicted >= 890, "{read:?}");
        assert_eq!(read.made, 1001);
        // An evicted encoding is computed again.
        assert_eq!(cold[0].bytes(Some(&budget), A, of(5)).len(), 5);
    }

    #[test]
    fn encoding_larger_than_the_limit_is_not_cached() {
        let budget = Budget::new(usize::MAX, 1000);
        let forms = Forms::default();
        assert_eq!(forms.bytes(Some(&budget), A, of(2000)).len(), 2000);
        assert_eq!(budget.read().encodings, 0);
    }

    #[test]
    fn slots_of_dropped_entries_are_purged() {
        let budget = Budget::unlimited();
        for _ in 0..10_000 {
            Forms::default().bytes(Some(&budget), A, of(10));
        }
        assert!(lock(&budget.shelf.slots).len() <= 200);
    }
}
