//! [`TtlCache`]: a bounded concurrent cache whose entries expire. All caches of answers from elsewhere (token
//! and access reviews, decrypted keys) are of this type; each chooses its key and how long an answer is
//! valid.
//!
//! The `quick_cache` crate bounds and evicts. Expiry is a comparison at each read on tokio's clock, which
//! tests can pause. Expired entries stay until they are replaced or evicted, so they take memory, but never
//! more than the bound.

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// A cache of up to a fixed number of entries, or weight of entries. When it is full, an entry that was used little
/// is evicted.
pub(crate) struct TtlCache<K, V>(Cache<K, (V, Instant), Weight<K, V>>);

/// The share of an entry in the capacity.
struct Weight<K, V>(fn(&K, &V) -> u64);

// Not derived: that would ask for `Clone` of the keys and values, too.
impl<K, V> Clone for Weight<K, V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> Weighter<K, (V, Instant)> for Weight<K, V> {
    fn weight(&self, key: &K, (value, _): &(V, Instant)) -> u64 {
        (self.0)(key, value)
    }
}

impl<K: Hash + Eq, V: Clone> TtlCache<K, V> {
    /// An empty cache of at most `capacity` entries. It allocates as it fills.
    ///
    /// Keys are hashed with a random seed, so that clients who choose them cannot make them collide.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::weighted(capacity, capacity as u64, |_, _| 1)
    }

    /// An empty cache of entries that weigh at most `capacity` together. About `entries` are expected. `weight` is
    /// evaluated often, so it must be cheap, and it must not change while an entry is in the cache.
    pub(crate) fn weighted(entries: usize, capacity: u64, weight: fn(&K, &V) -> u64) -> Self {
        Self(Cache::with_weighter(entries, capacity, Weight(weight)))
    }

    /// The value of this key, if it has not expired.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.get_at(key, Instant::now())
    }

    /// [`Self::get`] for callers that already know the time.
    pub(crate) fn get_at<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Instant) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (value, expires) = self.0.get(key)?;
        (expires > now).then_some(value)
    }

    /// Sets the value of this key for `ttl`. A `ttl` of zero stores nothing.
    pub(crate) fn insert(&self, key: K, value: V, ttl: Duration) {
        if !ttl.is_zero() {
            self.0.insert(key, (value, Instant::now() + ttl));
        }
    }

    /// The number of entries, expired ones included.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_expire() {
        let cache = TtlCache::new(8);
        cache.insert("a".to_owned(), 1, Duration::from_secs(10));
        cache.insert("b".to_owned(), 2, Duration::ZERO);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((cache.get("a"), cache.get("b")), (Some(1), None));
        cache.insert("a".to_owned(), 3, Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("a"), Some(3), "the lifetime is that of the new value");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("a"), None);
    }

    #[test]
    fn a_full_cache_evicts_entries_that_were_not_used() {
        let cache = TtlCache::new(64);
        cache.insert(0, (), Duration::from_secs(60));
        for key in 1..10_000 {
            assert!(cache.get(&0).is_some(), "after {key}");
            cache.insert(key, (), Duration::from_secs(60));
        }
        assert!(cache.len() <= 64, "{}", cache.len());
    }
}
