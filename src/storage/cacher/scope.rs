//! [`Scope`]: the keys of a resource that a watch covers, and its selector.
//!
//! [`SelectorId`] tells which selectors are equal, so that the [`Hub`](super::hub::Hub) evaluates one for all
//! watches that have it.

use super::snapshot::INDEXED;
use crate::storage::{Event, EventType, Predicate, Select};
use std::hash::{BuildHasher, Hash as _, Hasher as _, RandomState};
use std::sync::Arc;

/// A change as one watch sees it: an object that begins to match its selector is added, for example.
pub(super) type Change = (EventType, Arc<Event>);

/// The keys and the selector of a watch.
pub(super) struct Scope {
    /// The key, if [`Self::single`], otherwise what keys begin with.
    pub prefix: Box<str>,
    pub single: bool,
    pub predicate: Predicate,
    pub selector: SelectorId,
    /// See [`indexed_value`](Self::indexed_value).
    indexed: Option<Box<str>>,
}

/// Two watches of a resource with the same id have equal selectors. All without a selector have the default id.
// A hash instead of the selector: it is compared under the hub's lock, and selectors can be long. 128 bits under
// random keys, so that equal hashes of different selectors neither occur by chance nor can be made by a client.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SelectorId(u64, u64);

/// Computes the [`SelectorId`]s of a resource. Ids of different instances are unrelated.
#[derive(Default)]
pub(super) struct SelectorIds {
    high: RandomState,
    low: RandomState,
}

impl SelectorIds {
    fn of(&self, predicate: &Predicate) -> SelectorId {
        let Some(select) = &predicate.0 else {
            return SelectorId::default();
        };
        SelectorId(hash(&self.high, select), hash(&self.low, select))
    }
}

fn hash(keys: &RandomState, select: &Arc<dyn Select>) -> u64 {
    let mut hasher = keys.build_hasher();
    if !select.identify(&mut hasher) {
        // Equal to itself only. The watch keeps it, so no other one has its address meanwhile.
        Arc::as_ptr(select).cast::<()>().hash(&mut hasher);
    }
    hasher.finish()
}

impl Scope {
    pub(super) fn new(prefix: &str, single: bool, predicate: Predicate, ids: &SelectorIds) -> Self {
        // Found out once, as the id is: a search of a long selector would take its time under the hub's lock.
        let indexed = predicate.requires(INDEXED);
        // Other scopes are found by key already, which is narrower.
        let indexed = indexed.filter(|value| prefix.is_empty() && !single && !value.is_empty());
        Self {
            prefix: prefix.into(),
            single,
            indexed: indexed.map(Box::from),
            selector: ids.of(&predicate),
            predicate,
        }
    }

    /// True if the key is in scope.
    pub(super) fn covers(&self, key: &str) -> bool {
        if self.single {
            *key == *self.prefix
        } else {
            key.starts_with(&*self.prefix)
        }
    }

    /// If the watch covers the whole resource and its selector requires one value of the indexed field,
    /// returns that value. Objects without the field cannot match it.
    pub(super) fn indexed_value(&self) -> Option<&str> {
        self.indexed.as_deref()
    }
}
