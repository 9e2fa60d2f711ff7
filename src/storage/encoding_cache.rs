//! Cache of alternative encodings of stored objects (protobuf, CBOR, watch frames, other API versions):
//! computed on first use, shared by all readers, and bounded by a [`Budget`].
//!
//! Every [`Entry`] and [`Event`] has a [`CachedEncodings`], which allocates a slot when the first encoding is
//! cached. The budget's [`EncodingCache`] tracks all non-empty slots and evicts with the clock
//! (second-chance) algorithm: oldest first, skipping slots used since the previous pass. A slot dropped with
//! its entry returns its bytes itself.

use super::budget::Budget;
use super::{Entry, Event, EventType};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::sync::Mutex;

/// Identifies an encoding. The caller assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingKey {
    /// An encoding of the object, by media type number.
    Object(u8),
    /// A watch frame: event type and media type number.
    Frame(EventType, u8),
    /// The object, or the event of the given type, converted to another API version.
    Version(usize, Option<EventType>),
}

#[derive(Clone)]
enum CachedValue {
    Bytes(Bytes),
    Entry(Arc<Entry>),
    Event(Arc<Event>),
}

impl CachedValue {
    fn weight(&self) -> usize {
        /// Overhead of a cached value: its slot, its place in the slot and in the queue, and reference
        /// counts.
        const OVERHEAD: usize = size_of::<Slot>() + size_of::<(EncodingKey, CachedValue)>() + 64;
        OVERHEAD
            + match self {
                Self::Bytes(b) => b.len(),
                Self::Entry(e) => e.footprint(),
                Self::Event(e) => e.entry.footprint() + size_of::<Event>(),
            }
    }
}

/// The cached encodings of one entry or event.
#[derive(Default)]
pub struct CachedEncodings(OnceLock<Arc<Slot>>);

struct Slot {
    budget: Arc<Budget>,
    values: Mutex<Vec<(EncodingKey, CachedValue)>>,
    /// Reference bit of the clock algorithm: used since the last pass.
    recently_used: AtomicBool,
}

/// The encoding cache: all non-empty slots.
#[derive(Default)]
pub(crate) struct EncodingCache {
    bytes: AtomicUsize,
    /// Non-empty slots whose entry still exists.
    live_slots: AtomicUsize,
    slots: Mutex<VecDeque<Weak<Slot>>>,
    computed: AtomicU64,
    reused: AtomicU64,
    evicted: AtomicU64,
}

/// Panic message: one key was used for two types of value.
const ONE_TYPE: &str = "a key has one type of value";

impl CachedEncodings {
    /// Returns the cached bytes, or computes and caches them. Concurrent callers for the same entry block
    /// until the first has finished. Without a budget nothing is cached.
    pub fn bytes(&self, budget: Option<&Arc<Budget>>, key: EncodingKey, compute: impl FnOnce() -> Bytes) -> Bytes {
        match self.get_or_compute(budget, key, || CachedValue::Bytes(compute())) {
            CachedValue::Bytes(bytes) => bytes,
            _ => unreachable!("{ONE_TYPE}"),
        }
    }

    /// As [`bytes`](Self::bytes), for an entry.
    pub fn entry(&self, budget: Option<&Arc<Budget>>, key: EncodingKey, compute: impl FnOnce() -> Entry) -> Arc<Entry> {
        match self.get_or_compute(budget, key, || CachedValue::Entry(Arc::new(compute()))) {
            CachedValue::Entry(entry) => entry,
            _ => unreachable!("{ONE_TYPE}"),
        }
    }

    /// Returns the cached entry, if there is one.
    pub fn cached_entry(&self, key: EncodingKey) -> Option<Arc<Entry>> {
        self.cached(key).map(|value| match value {
            CachedValue::Entry(entry) => entry,
            _ => unreachable!("{ONE_TYPE}"),
        })
    }

    /// Returns the cached event, if there is one.
    pub fn cached_event(&self, key: EncodingKey) -> Option<Arc<Event>> {
        self.cached(key).map(|value| match value {
            CachedValue::Event(event) => event,
            _ => unreachable!("{ONE_TYPE}"),
        })
    }

    fn cached(&self, key: EncodingKey) -> Option<CachedValue> {
        let slot = self.0.get()?;
        let values = slot.values.lock();
        let value = values.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone())?;
        slot.recently_used.store(true, Ordering::Relaxed);
        slot.budget.encoding_cache.reused.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// As [`bytes`](Self::bytes), for an event.
    pub fn event(&self, budget: Option<&Arc<Budget>>, key: EncodingKey, compute: impl FnOnce() -> Event) -> Arc<Event> {
        match self.get_or_compute(budget, key, || CachedValue::Event(Arc::new(compute()))) {
            CachedValue::Event(event) => event,
            _ => unreachable!("{ONE_TYPE}"),
        }
    }

    /// Drops the cached encodings. They are computed again on demand.
    pub(crate) fn clear(&self) {
        if let Some(slot) = self.0.get() {
            Slot::clear(&mut slot.values.lock(), &slot.budget.encoding_cache);
        }
    }

    fn get_or_compute(
        &self,
        budget: Option<&Arc<Budget>>,
        key: EncodingKey,
        compute: impl FnOnce() -> CachedValue,
    ) -> CachedValue {
        let Some(budget) = budget else { return compute() };
        let slot = self.0.get_or_init(|| {
            Arc::new(Slot {
                budget: budget.clone(),
                values: Mutex::default(),
                recently_used: AtomicBool::new(false),
            })
        });
        let cache = &slot.budget.encoding_cache;
        // Held while encoding, so that many watchers of one event encode it once.
        let mut values = slot.values.lock();
        if let Some((_, value)) = values.iter().find(|(f, _)| *f == key) {
            slot.recently_used.store(true, Ordering::Relaxed);
            cache.reused.fetch_add(1, Ordering::Relaxed);
            return value.clone();
        }
        let value = compute();
        cache.computed.fetch_add(1, Ordering::Relaxed);
        let (weight, limit) = (value.weight(), slot.budget.encodings_limit());
        if weight > limit {
            return value;
        }
        let first = values.is_empty();
        // Most slots hold one or two values: exact growth saves memory.
        values.reserve_exact(1);
        values.push((key, value.clone()));
        if first {
            cache.live_slots.fetch_add(1, Ordering::Relaxed);
        }
        cache.bytes.fetch_add(weight, Ordering::Relaxed);
        // Released before eviction, which may want to clear this very slot.
        drop(values);
        cache.insert(first.then_some(slot), limit);
        value
    }
}

impl Clone for CachedEncodings {
    /// A clone belongs to another object and starts empty.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for CachedEncodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedEncodings")
    }
}

impl Slot {
    /// Empties the slot and returns the number of values removed.
    fn clear(values: &mut Vec<(EncodingKey, CachedValue)>, cache: &EncodingCache) -> usize {
        let gone = std::mem::take(values);
        if gone.is_empty() {
            return 0;
        }
        let weight: usize = gone.iter().map(|(_, value)| value.weight()).sum();
        cache.bytes.fetch_sub(weight, Ordering::Relaxed);
        cache.live_slots.fetch_sub(1, Ordering::Relaxed);
        gone.len()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let values = self.values.get_mut();
        Self::clear(values, &self.budget.encoding_cache);
    }
}

impl EncodingCache {
    /// Bytes cached.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts of encodings computed, reused and evicted.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (read(&self.computed), read(&self.reused), read(&self.evicted))
    }

    /// Removes dead slots, which their list of weak references keeps allocated. After a burst these are tens
    /// of thousands of small blocks, scattered over pages of memory that could be returned to the system
    /// otherwise.
    pub(super) fn purge(&self) {
        let mut slots = self.slots.lock();
        if slots.len() > self.live_slots.load(Ordering::Relaxed) + 64 {
            slots.retain(|s| s.strong_count() > 0);
            slots.shrink_to_fit();
        }
    }

    /// Adds a slot that was empty before, then evicts until the cache fits `limit`.
    fn insert(&self, slot: Option<&Arc<Slot>>, limit: usize) {
        if slot.is_none() && self.bytes() <= limit {
            return;
        }
        let mut slots = self.slots.lock();
        if let Some(slot) = slot {
            // Dead slots are purged before they outnumber the live ones.
            if slots.len() > 2 * self.live_slots.load(Ordering::Relaxed) + 64 {
                slots.retain(|s| s.strong_count() > 0);
            }
            slots.push_back(Arc::downgrade(slot));
        }
        // Two passes: the first may only clear reference bits.
        let mut steps = 2 * slots.len();
        while self.bytes() > limit && steps > 0 {
            steps -= 1;
            let Some(next) = slots.pop_front() else { break };
            let Some(slot) = next.upgrade() else { continue };
            if slot.recently_used.swap(false, Ordering::Relaxed) {
                slots.push_back(next);
                continue;
            }
            match slot.values.try_lock() {
                Some(mut values) => {
                    let gone = Slot::clear(&mut values, self);
                    self.evicted.fetch_add(gone as u64, Ordering::Relaxed);
                }
                // Another thread is encoding into it; waiting here could deadlock.
                None => slots.push_back(next),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const A: EncodingKey = EncodingKey::Object(0);
    const B: EncodingKey = EncodingKey::Object(1);

    fn of(n: usize) -> impl FnOnce() -> Bytes {
        move || Bytes::from(vec![0; n])
    }

    #[test]
    fn encoding_is_computed_once_and_shared() {
        let (budget, encodings, value) = (Budget::unlimited(), CachedEncodings::default(), Cell::new(0));
        let compute = || {
            encodings.bytes(Some(&budget), A, || {
                value.set(value.get() + 1);
                Bytes::from(vec![7; 100])
            })
        };
        let (first, second) = (compute(), compute());
        assert_eq!((first.as_ptr(), value.get()), (second.as_ptr(), 1));
        assert_eq!(
            encodings.bytes(Some(&budget), B, of(3)).len(),
            3,
            "each form is encoded separately"
        );
        let read = budget.stats();
        assert_eq!((read.computed, read.reused, read.evicted), (2, 1, 0));
    }

    #[test]
    fn dropping_an_entry_frees_its_encodings() {
        let budget = Budget::unlimited();
        let encodings = CachedEncodings::default();
        encodings.bytes(Some(&budget), A, of(1000));
        assert!(budget.stats().encodings >= 1000);
        drop(encodings);
        assert_eq!(budget.stats().encodings, 0);
    }

    #[test]
    fn eviction_keeps_the_limit_and_recently_used_slots() {
        let budget = Budget::new(usize::MAX, 100_000);
        let hot = CachedEncodings::default();
        hot.bytes(Some(&budget), A, of(900));
        let cold: Vec<CachedEncodings> = (0..1000).map(|_| CachedEncodings::default()).collect();
        for encodings in &cold {
            encodings.bytes(Some(&budget), A, of(900));
            hot.bytes(Some(&budget), A, || panic!("a recently used encoding is not evicted"));
            assert!(budget.stats().encodings <= 100_000);
        }
        let read = budget.stats();
        assert!(read.evicted >= 890, "{read:?}");
        assert_eq!(read.computed, 1001);
        // An evicted encoding is computed again.
        assert_eq!(cold[0].bytes(Some(&budget), A, of(5)).len(), 5);
    }

    #[test]
    fn encoding_larger_than_the_limit_is_not_cached() {
        let budget = Budget::new(usize::MAX, 1000);
        let encodings = CachedEncodings::default();
        assert_eq!(encodings.bytes(Some(&budget), A, of(2000)).len(), 2000);
        assert_eq!(budget.stats().encodings, 0);
    }

    #[test]
    fn slots_of_dropped_entries_are_purged() {
        let budget = Budget::unlimited();
        for _ in 0..10_000 {
            CachedEncodings::default().bytes(Some(&budget), A, of(10));
        }
        assert!(budget.encoding_cache.slots.lock().len() <= 200);
    }

    #[test]
    fn maintenance_purges_the_slots_of_a_burst() {
        let budget = Budget::unlimited();
        let all: Vec<CachedEncodings> = (0..10_000).map(|_| CachedEncodings::default()).collect();
        for encodings in &all {
            encodings.bytes(Some(&budget), A, of(10));
        }
        budget.maintain();
        assert_eq!(budget.encoding_cache.slots.lock().len(), 10_000, "live slots stay");
        drop(all);
        budget.maintain();
        let slots = budget.encoding_cache.slots.lock();
        assert!(slots.is_empty() && slots.capacity() < 200, "{}", slots.capacity());
    }

    #[test]
    fn cleared_encodings_are_computed_again() {
        let (budget, encodings) = (Budget::unlimited(), CachedEncodings::default());
        encodings.bytes(Some(&budget), A, of(1000));
        encodings.clear();
        assert_eq!(budget.stats().encodings, 0);
        assert_eq!(encodings.bytes(Some(&budget), A, of(5)).len(), 5);
    }
}
