//! [`Sharded`]: a map by text that never moves many of its entries at once.
//!
//! A hash table that is full moves all its entries, under the lock that protects it. Tables whose keys clients
//! choose are therefore kept in shards, which grow one at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// With 100,000 entries, a shard that grows moves some 1,600 at a time.
const SHARDS: usize = 64;

type Shard<V> = HashMap<Box<str>, V>;

pub(super) struct Sharded<V> {
    hasher: RandomState,
    /// None before the first use: most resources need no such map.
    shards: Vec<Shard<V>>,
}

// Derived, it would require a default of the values.
impl<V> Default for Sharded<V> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: Vec::new(),
        }
    }
}

impl<V> Sharded<V> {
    fn index(&self, key: &str) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }

    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        // Spares the hash.
        if self.is_unused() {
            return None;
        }
        self.shards[self.index(key)].get(key)
    }

    /// The shard that has, or is to have, the entry of this key.
    pub(crate) fn shard_mut(&mut self, key: &str) -> &mut Shard<V> {
        if self.is_unused() {
            self.shards.resize_with(SHARDS, Shard::new);
        }
        let index = self.index(key);
        &mut self.shards[index]
    }

    /// True before the first use; false afterwards, even if there are no entries left.
    pub(crate) fn is_unused(&self) -> bool {
        self.shards.is_empty()
    }

    /// All entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let entries = self.shards.iter().flatten();
        entries.map(|(key, value)| (&**key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_spread_over_the_shards() {
        let mut map = Sharded::default();
        assert!(map.get("0").is_none());
        for i in 0..10_000usize {
            let key = i.to_string();
            map.shard_mut(&key).insert(key.as_str().into(), i);
        }
        assert!(map.shards.iter().all(|shard| shard.len() < 1000));
        for (key, value) in map.iter() {
            assert_eq!(map.get(key), Some(value));
        }
        assert_eq!(map.iter().map(|(_, value)| *value).sum::<usize>(), 9999 * 5000);
        map.shard_mut("7").remove("7");
        assert!(map.get("7").is_none() && !map.is_unused());
    }
}
