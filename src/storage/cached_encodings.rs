//! [`CachedEncodings`]: alternative encodings of a stored object or event (protobuf, CBOR, watch frames,
//! other API versions), computed on first use, shared by all readers, and bounded by a [`Budget`].
//!
//! Every [`Entry`](super::Entry) and [`Event`](super::Event) has one. It allocates a slot of the budget's
//! [`EncodingCache`](super::encoding_cache::EncodingCache), which evicts, when the first encoding is cached.

use super::budget::Budget;
use super::encoding_cache::{Cacheable, CachedValue, EncodingKey, Slot};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The cached encodings of one entry or event. Every object in memory has one, so it is a single pointer, which is
/// set once.
#[derive(Default)]
pub struct CachedEncodings(ArcSwapOption<Slot>);

/// Panic message: one key was used for two types of value.
const ONE_TYPE: &str = "a key has one type of value";

impl CachedEncodings {
    /// Returns the cached bytes, or computes and caches them. Concurrent callers for the same entry block
    /// until the first has finished. Without a budget nothing is cached.
    pub fn bytes(&self, budget: Option<&Arc<Budget>>, key: EncodingKey, compute: impl FnOnce() -> Bytes) -> Bytes {
        match self.get_or_compute(budget, key, || CachedValue::Bytes(compute())) {
            CachedValue::Bytes(bytes) => bytes,
            CachedValue::Object(_) => unreachable!("{ONE_TYPE}"),
        }
    }

    /// As [`bytes`](Self::bytes), for a converted entry or event.
    pub(crate) fn object<T: Cacheable>(
        &self,
        budget: Option<&Arc<Budget>>,
        key: EncodingKey,
        compute: impl FnOnce() -> T,
    ) -> Arc<T> {
        downcast(self.get_or_compute(budget, key, || CachedValue::Object(Arc::new(compute()))))
    }

    /// Returns the cached entry or event, if there is one.
    pub(crate) fn cached_object<T: Cacheable>(&self, key: EncodingKey) -> Option<Arc<T>> {
        self.0.load().as_ref()?.get(key).map(downcast)
    }

    /// Drops the cached encodings. They are computed again on demand.
    pub(crate) fn clear(&self) {
        if let Some(slot) = self.0.load().as_ref() {
            slot.clear();
        }
    }

    fn get_or_compute(
        &self,
        budget: Option<&Arc<Budget>>,
        key: EncodingKey,
        compute: impl FnOnce() -> CachedValue,
    ) -> CachedValue {
        let Some(budget) = budget else { return compute() };
        // `ArcSwapOption` and not a lock: most objects never get a cached encoding and pay one pointer for
        // the possibility.
        let mut slot = self.0.load();
        if slot.is_none() {
            // If several threads do this at the same time, one succeeds.
            let new = Slot::new(budget.encoding_cache.clone());
            self.0.compare_and_swap(&slot, Some(new));
            slot = self.0.load();
        }
        let slot = slot.as_ref().expect("it was set, and is never unset");
        slot.get_or_compute(key, || budget.encodings_limit(), compute)
    }
}

fn downcast<T: Cacheable>(value: CachedValue) -> Arc<T> {
    match value {
        // The upcast to `Any` gives the concrete type back.
        CachedValue::Object(object) => Arc::downcast(object as Arc<dyn Any + Send + Sync>).ok(),
        CachedValue::Bytes(_) => None,
    }
    .expect(ONE_TYPE)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const A: EncodingKey = EncodingKey::Object(0);
    const B: EncodingKey = EncodingKey::Object(1);

    fn zeros(n: usize) -> impl FnOnce() -> Bytes {
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
            encodings.bytes(Some(&budget), B, zeros(3)).len(),
            3,
            "each encoding is encoded separately"
        );
        let read = budget.stats();
        assert_eq!((read.computed, read.reused, read.evicted), (2, 1, 0));
    }

    #[test]
    fn dropping_an_entry_frees_its_encodings() {
        let budget = Budget::unlimited();
        let encodings = CachedEncodings::default();
        encodings.bytes(Some(&budget), A, zeros(1000));
        assert!(budget.stats().encodings >= 1000);
        drop(encodings);
        assert_eq!(budget.stats().encodings, 0);
    }

    #[test]
    fn eviction_keeps_the_limit_and_recently_used_slots() {
        let budget = Budget::new(usize::MAX, 100_000);
        let hot = CachedEncodings::default();
        hot.bytes(Some(&budget), A, zeros(900));
        let cold: Vec<CachedEncodings> = (0..1000).map(|_| CachedEncodings::default()).collect();
        for encodings in &cold {
            encodings.bytes(Some(&budget), A, zeros(900));
            hot.bytes(Some(&budget), A, || panic!("a recently used encoding is not evicted"));
            assert!(budget.stats().encodings <= 100_000);
        }
        let read = budget.stats();
        assert!(read.evicted >= 890, "{read:?}");
        assert_eq!(read.computed, 1001);
        // An evicted encoding is computed again.
        assert_eq!(cold[0].bytes(Some(&budget), A, zeros(5)).len(), 5);
    }

    #[test]
    fn encoding_larger_than_the_limit_is_not_cached() {
        let budget = Budget::new(usize::MAX, 1000);
        let encodings = CachedEncodings::default();
        assert_eq!(encodings.bytes(Some(&budget), A, zeros(2000)).len(), 2000);
        assert_eq!(budget.stats().encodings, 0);
    }

    #[test]
    fn slots_of_dropped_entries_are_purged() {
        let budget = Budget::unlimited();
        for _ in 0..10_000 {
            CachedEncodings::default().bytes(Some(&budget), A, zeros(10));
        }
        assert!(budget.encoding_cache.slot_list().0 <= 200);
    }

    #[test]
    fn maintenance_purges_the_slots_of_a_burst() {
        let budget = Budget::unlimited();
        let all: Vec<CachedEncodings> = (0..10_000).map(|_| CachedEncodings::default()).collect();
        for encodings in &all {
            encodings.bytes(Some(&budget), A, zeros(10));
        }
        budget.maintain();
        assert_eq!(budget.encoding_cache.slot_list().0, 10_000, "live slots stay");
        drop(all);
        budget.maintain();
        let (length, capacity) = budget.encoding_cache.slot_list();
        assert!(length == 0 && capacity < 200, "{capacity}");
    }

    #[test]
    fn cleared_encodings_are_computed_again() {
        let (budget, encodings) = (Budget::unlimited(), CachedEncodings::default());
        encodings.bytes(Some(&budget), A, zeros(1000));
        encodings.clear();
        assert_eq!(budget.stats().encodings, 0);
        assert_eq!(encodings.bytes(Some(&budget), A, zeros(5)).len(), 5);
    }
}
