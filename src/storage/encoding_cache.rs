//! [`EncodingCache`]: all cached encodings of one budget, and their eviction.
//!
//! The cache tracks all non-empty [`Slot`]s; each belongs to the
//! [`CachedEncodings`](super::cached_encodings::CachedEncodings) of one object or event. It evicts with the
//! clock (second-chance) algorithm: oldest first, skipping slots used since the previous pass. A slot dropped
//! with its object returns its bytes itself. The limit is the caller's.

use super::event_type::EventType;
use crate::sync::Mutex;
use bytes::Bytes;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

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

/// A decoded form that can be cached beside encoded bytes.
pub(crate) trait Cacheable: Any + Send + Sync {
    /// Approximate memory in bytes.
    fn cached_size(&self) -> usize;
}

/// A cached value. The key determines which variant, and which type, it has.
#[derive(Clone)]
pub(super) enum CachedValue {
    Bytes(Bytes),
    Object(Arc<dyn Cacheable>),
}

impl CachedValue {
    fn weight(&self) -> usize {
        /// Overhead of a cached value: its slot, its place in the slot and in the queue, and reference
        /// counts.
        const OVERHEAD: usize = size_of::<Slot>() + size_of::<(EncodingKey, CachedValue)>() + 64;
        OVERHEAD
            + match self {
                Self::Bytes(b) => b.len(),
                Self::Object(object) => object.cached_size(),
            }
    }
}

/// The cached values of one object or event.
pub(super) struct Slot {
    cache: Arc<EncodingCache>,
    values: Mutex<Vec<(EncodingKey, CachedValue)>>,
    /// Reference bit of the clock algorithm: used since the last pass.
    recently_used: AtomicBool,
}

/// The encoding cache: all non-empty slots.
#[derive(Default)]
pub(crate) struct EncodingCache {
    bytes: AtomicUsize,
    /// Non-empty slots whose object still exists.
    live_slots: AtomicUsize,
    slots: Mutex<VecDeque<Weak<Slot>>>,
    computed: AtomicU64,
    reused: AtomicU64,
    evicted: AtomicU64,
}

impl Slot {
    /// Creates an empty slot.
    pub(super) fn new(cache: Arc<EncodingCache>) -> Arc<Self> {
        Arc::new(Self {
            cache,
            values: Mutex::default(),
            recently_used: AtomicBool::new(false),
        })
    }

    /// Returns the value of `key`, if it is cached.
    pub(super) fn get(&self, key: EncodingKey) -> Option<CachedValue> {
        self.find(&self.values.lock(), key)
    }

    fn find(&self, values: &[(EncodingKey, CachedValue)], key: EncodingKey) -> Option<CachedValue> {
        let value = values.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone())?;
        // Relaxed: an update that comes late only evicts the slot earlier.
        self.recently_used.store(true, Ordering::Relaxed);
        self.cache.reused.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// Returns the cached value of `key`, or computes it and caches it if the cache may use that many bytes.
    /// `limit` is read after the computation. Concurrent callers block until the first has finished.
    pub(super) fn get_or_compute(
        self: &Arc<Self>,
        key: EncodingKey,
        limit: impl FnOnce() -> usize,
        compute: impl FnOnce() -> CachedValue,
    ) -> CachedValue {
        let cache = &self.cache;
        // Held while encoding, so that many watchers of one event encode it once.
        let mut values = self.values.lock();
        if let Some(value) = self.find(&values, key) {
            return value;
        }
        let value = compute();
        cache.computed.fetch_add(1, Ordering::Relaxed);
        // The limit is read after the computation, since other memory may have grown meanwhile.
        let (weight, limit) = (value.weight(), limit());
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
        cache.insert(first.then_some(self), limit);
        value
    }

    pub(super) fn clear(&self) {
        self.cache.remove(&mut self.values.lock());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.cache.remove(self.values.get_mut());
    }
}

impl EncodingCache {
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
        // The slack of 64 keeps small caches from being searched all the time.
        if slots.len() > self.live_slots.load(Ordering::Relaxed) + 64 {
            slots.retain(|s| s.strong_count() > 0);
            slots.shrink_to_fit();
        }
    }

    /// Length and capacity of the list of slots, which includes those whose object is gone.
    #[cfg(test)]
    pub(super) fn slot_list(&self) -> (usize, usize) {
        let slots = self.slots.lock();
        (slots.len(), slots.capacity())
    }

    /// Removes all values of a slot and returns how many there were.
    fn remove(&self, values: &mut Vec<(EncodingKey, CachedValue)>) -> usize {
        let removed = std::mem::take(values);
        if removed.is_empty() {
            return 0;
        }
        let weight: usize = removed.iter().map(|(_, value)| value.weight()).sum();
        self.bytes.fetch_sub(weight, Ordering::Relaxed);
        self.live_slots.fetch_sub(1, Ordering::Relaxed);
        removed.len()
    }

    /// Adds a slot that was empty before, then evicts until the cache fits `limit`.
    fn insert(&self, slot: Option<&Arc<Slot>>, limit: usize) {
        // Within the limit and known already: the common case takes no global lock.
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
            // Its object is gone, and `Drop` has returned its bytes.
            let Some(slot) = next.upgrade() else { continue };
            if slot.recently_used.swap(false, Ordering::Relaxed) {
                slots.push_back(next);
                continue;
            }
            match slot.values.try_lock() {
                Some(mut values) => {
                    let removed = self.remove(&mut values);
                    self.evicted.fetch_add(removed as u64, Ordering::Relaxed);
                }
                // Another thread is encoding into it; waiting here could deadlock.
                None => slots.push_back(next),
            }
        }
    }
}
