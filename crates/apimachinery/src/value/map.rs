//! [`Map`]: an object of the tree.

use super::{Str, Value};
use crate::interrupt::{pause, pausing};
use std::fmt;
use std::hash::{Hash, Hasher};

/// An object: pairs sorted by key (bytewise), keys unique.
#[derive(PartialEq, Default)]
pub struct Map(Vec<(Str, Value)>);

/// Sorts members by key and keeps the order of those with the same key.
pub(crate) fn sort_pairs(pairs: &mut [(Str, Value)]) {
    pairs.sort_by(pausing(|a: &(Str, Value), b: &(Str, Value)| a.0.cmp(&b.0)));
}

impl Map {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Builds a map from pairs in any order. The last of several equal keys wins, as in Go's decoder.
    pub fn from_pairs(mut pairs: Vec<(Str, Value)>) -> Self {
        // Most input is sorted already, because encoders write sorted keys.
        if !pairs.windows(2).all(|w| w[0].0 < w[1].0) {
            // A stable sort keeps duplicates in source order, so "last wins" is "keep the last of each run".
            sort_pairs(&mut pairs);
            pairs.dedup_by(|next, kept| {
                let again = next.0 == kept.0;
                if again {
                    std::mem::swap(next, kept);
                }
                again
            });
        }
        Self(pairs)
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// The index of `key`. A linear scan that compares lengths first beats binary search on small maps, whose
    /// keys mostly differ in length.
    fn position(&self, key: &str) -> Option<usize> {
        // Typical objects have fewer keys per level than this.
        const FEW: usize = 16;
        if self.0.len() > FEW {
            return self.find(key).ok();
        }
        self.0
            .iter()
            .position(|(k, _)| k.len() == key.len() && k.as_str() == key)
    }

    /// The number of keys that sort after `key`.
    pub(crate) fn keys_after(&self, key: &str) -> usize {
        self.0.len() - self.0.partition_point(|(k, _)| k.as_str() <= key)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|i| &self.0[i].1)
    }

    /// Mutable access to the value of `key`.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).map(|i| &mut self.0[i].1)
    }

    /// The value of `key`, inserted as null if absent.
    pub fn entry(&mut self, key: &str) -> &mut Value {
        let i = self.position(key).unwrap_or_else(|| {
            // Not `find`: its error position would do, but small maps have not been searched by it yet.
            let i = self.0.partition_point(|(k, _)| k.as_str() < key);
            self.0.insert(i, (Str::new(key), Value::Null));
            i
        });
        &mut self.0[i].1
    }

    /// The object under `key`. A missing or non-object value is replaced by an empty object.
    pub fn object_entry(&mut self, key: &str) -> &mut Map {
        self.entry(key).make_object()
    }

    /// True if `key` is present, even with a null value.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Sets `key` and returns its previous value.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Value>) -> Option<Value> {
        let key = key.into();
        match self.find(&key) {
            Ok(i) => Some(std::mem::replace(&mut self.0[i].1, value.into())),
            Err(i) => {
                self.0.insert(i, (key, value.into()));
                None
            }
        }
    }

    /// Reserves capacity for exactly `pairs` more pairs.
    pub fn reserve(&mut self, pairs: usize) {
        // Exact, because the caller knows the number; maps live as long as their object.
        self.0.reserve_exact(pairs);
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.position(key).map(|i| self.0.remove(i).1)
    }

    /// Sets (`Some`) and removes (`None`) many keys, which must be sorted and unique. Large batches are
    /// merged in one pass: single insertions into a sorted vector would be quadratic, and clients choose how
    /// many keys a patch changes.
    pub fn change(&mut self, changes: Vec<(Str, Option<Value>)>) {
        /// Below this, single changes move less data than a full pass.
        const FEW: usize = 8;
        debug_assert!(
            changes.windows(2).all(|w| w[0].0 < w[1].0),
            "changes are sorted and unique"
        );
        if changes.len() < FEW {
            for (key, value) in changes {
                match value {
                    Some(value) => drop(self.insert(key, value)),
                    None => drop(self.remove(&key)),
                }
            }
            return;
        }
        // Room for all changes to be insertions, so that the merge never reallocates.
        let mut out = Vec::with_capacity(self.0.len() + changes.len());
        let mut mine = std::mem::take(&mut self.0).into_iter().peekable();
        for (key, value) in changes {
            while let Some(pair) = mine.next_if(|(k, _)| *k < key) {
                out.push(pair);
            }
            // Replaced or removed, so the old value is dropped in either case.
            mine.next_if(|(k, _)| *k == key);
            out.extend(value.map(|v| (key, v)));
        }
        // Members behind the last change keep their order and end up in place.
        out.extend(mine);
        self.0 = out;
    }

    /// Iterates over pairs in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The pair at an index in key order.
    ///
    /// # Panics
    /// If the map has no more than `index` pairs.
    pub fn nth(&self, index: usize) -> (&str, &Value) {
        let (key, value) = &self.0[index];
        (key, value)
    }

    /// Iterates over pairs in key order with mutable values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.0.iter_mut().map(|(k, v)| (k.as_str(), v))
    }

    /// Iterates over keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(k, _)| k.as_str())
    }

    /// Iterates over values in key order.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(_, v)| v)
    }

    /// Removes the pairs for which `f` returns false.
    pub fn retain(&mut self, mut f: impl FnMut(&str, &mut Value) -> bool) {
        self.0.retain_mut(|(k, v)| {
            pause();
            f(k, v)
        });
    }

    /// A copy without some keys, whose values are not copied either.
    pub fn without(&self, keys: &[&str]) -> Self {
        let rest = self.0.iter().filter(|(k, _)| !keys.contains(&k.as_str()));
        Self(rest.cloned().collect())
    }

    /// True if both have the same pairs, except under some keys.
    pub fn equals_except(&self, other: &Self, keys: &[&str]) -> bool {
        let rest = |(k, _): &&(Str, Value)| !keys.contains(&k.as_str());
        // Both are sorted, so filtering the same keys leaves sequences that compare pairwise.
        self.0.iter().filter(rest).eq(other.0.iter().filter(rest))
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the map has no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The string under `key`, or `""` if it is absent or not a string.
    pub fn str(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or("")
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;
    fn into_iter(mut self) -> Self::IntoIter {
        // `Map` implements `Drop`, so the vector cannot be moved out of it.
        std::mem::take(&mut self.0).into_iter()
    }
}

// Copying and dropping the tree of a body of 3 MB takes some milliseconds each, hence the pauses. Lists have
// none of their own: either their elements are maps, or they are cheap.

impl Clone for Map {
    fn clone(&self) -> Self {
        // `collect` would allocate room for four pairs at least, and most maps have fewer.
        let mut pairs = Vec::with_capacity(self.0.len());
        pairs.extend(self.0.iter().inspect(|_| pause()).cloned());
        Self(pairs)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // `drain` instead of the default drop, to pause between members.
        self.0.drain(..).for_each(|pair| {
            pause();
            drop(pair);
        });
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(iter: T) -> Self {
        Self::from_pairs(iter.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

impl Eq for Map {}

impl Hash for Map {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn batch_change_equals_single_changes(
            before in proptest::collection::btree_map("[a-f]{0,2}", any::<i64>(), 0..40),
            changes in proptest::collection::btree_map("[a-f]{0,2}", any::<Option<i64>>(), 0..40),
        ) {
            let mut map: Map = before.clone().into_iter().collect();
            let mut want: BTreeMap<String, i64> = before;
            for (k, v) in &changes {
                match v {
                    Some(v) => drop(want.insert(k.clone(), *v)),
                    None => drop(want.remove(k)),
                }
            }
            map.change(changes.into_iter().map(|(k, v)| (k.into(), v.map(Value::Int))).collect());
            prop_assert_eq!(map, want.into_iter().collect::<Map>());
        }

        #[test]
        fn from_pairs_equals_insertion(
            pairs in proptest::collection::vec(("[a-d]{0,2}", any::<i64>()), 0..30),
        ) {
            let mut want = Map::new();
            pairs.iter().for_each(|(k, v)| drop(want.insert(k.as_str(), *v)));
            prop_assert_eq!(pairs.into_iter().collect::<Map>(), want);
        }
    }

    #[test]
    fn last_duplicate_key_wins() {
        let m = Map::from_pairs(vec![
            ("b".into(), 1i64.into()),
            ("a".into(), 2i64.into()),
            ("b".into(), 3i64.into()),
        ]);
        assert_eq!(
            m.iter().map(|(k, v)| (k, v.as_i64())).collect::<Vec<_>>(),
            [("a", Some(2)), ("b", Some(3))]
        );
    }

    #[test]
    fn a_copy_has_room_for_its_members_only() {
        let map: Map = [("a", 1)].into_iter().collect();
        assert_eq!(map.clone().0.capacity(), 1);
    }
}
