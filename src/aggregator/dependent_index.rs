//! [`DependentIndex`]: which APIServices depend on an object, such as a Service or a Secret.

use crate::apimachinery::value::Str;
use crate::sync::Mutex;
use crate::tasks::shrink;
use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Names of APIServices by the key of an object that they depend on. Takes no memory for other objects.
pub(super) struct DependentIndex<K>(Mutex<HashMap<K, BTreeSet<Str>>>);

impl<K> Default for DependentIndex<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> DependentIndex<K> {
    /// Replaces the objects that one APIService depends on; `old` are the keys of its last update.
    pub(super) fn update(&self, name: &str, old: impl IntoIterator<Item = K>, new: impl IntoIterator<Item = K>) {
        let mut dependents = self.0.lock();
        for key in old {
            if let Some(names) = dependents.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    dependents.remove(&key);
                }
            }
        }
        // After the removals: a key that is in both must stay.
        for key in new {
            dependents.entry(key).or_default().insert(name.into());
        }
        shrink(&mut dependents);
    }

    /// Whether any APIService depends on the object.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }

    /// The APIServices that depend on the object, sorted by name.
    pub(super) fn dependents<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Vec<Str>
    where
        K: Borrow<Q>,
    {
        self.0.lock().get(key).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_moves_an_apiservice_to_its_new_objects() {
        let index = DependentIndex::<&str>::default();
        index.update("a", [], ["x", "y"]);
        index.update("b", [], ["x"]);
        index.update("a", ["x", "y"], ["y"]);
        assert_eq!(index.dependents("x"), ["b"]);
        assert_eq!(index.dependents("y"), ["a"]);
        index.update("b", ["x"], []);
        assert!(!index.contains(&"x") && index.dependents("x").is_empty());
    }
}
