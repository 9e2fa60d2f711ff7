//! [`Scope`]: the keys of a resource that a watch covers.

use super::snapshot::INDEXED;
use crate::storage::{Event, EventType, Predicate};
use std::sync::Arc;

/// A change as one watch sees it: an object that begins to match its selector is added, for example.
pub(super) type Change = (EventType, Arc<Event>);

/// The keys and the selector of a watch.
pub(super) struct Scope {
    /// The key, if [`Self::single`], otherwise what keys begin with.
    pub prefix: Box<str>,
    pub single: bool,
    pub predicate: Predicate,
    /// See [`indexed_value`](Self::indexed_value).
    indexed: Option<Box<str>>,
}

impl Scope {
    pub(super) fn new(prefix: &str, single: bool, predicate: Predicate) -> Self {
        // Found out once: a search of a long selector would take its time under the hub's lock.
        let indexed = predicate.requires(INDEXED);
        // Other scopes are found by key already, which is narrower.
        let indexed = indexed.filter(|value| prefix.is_empty() && !single && !value.is_empty());
        Self {
            prefix: prefix.into(),
            single,
            indexed: indexed.map(Box::from),
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
