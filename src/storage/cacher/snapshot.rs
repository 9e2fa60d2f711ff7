//! The state of one resource at one revision: a persistent ordered set, so that a copy costs a pointer.

use crate::storage::{Entry, Event, Revision};
use imbl::OrdSet;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// An entry ordered by its key: the set needs no second copy of the key.
#[derive(Clone)]
struct Slot(Arc<Entry>);

impl Borrow<str> for Slot {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Slot {}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// All objects of a resource, by key. Cloning is cheap; clones don't see each other's changes.
#[derive(Clone)]
pub struct Snapshot {
    entries: OrdSet<Slot>,
    /// Everything of this resource up to here is in it.
    pub revision: Revision,
}

impl Snapshot {
    /// Of these entries, in any order.
    pub fn new(entries: Vec<Arc<Entry>>, revision: Revision) -> Self {
        Self {
            entries: entries.into_iter().map(Slot).collect(),
            revision,
        }
    }

    /// The same state, known to be that of a later revision too.
    pub fn at(&self, revision: Revision) -> Self {
        Self {
            entries: self.entries.clone(),
            revision,
        }
    }

    /// The entry at `key`.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key).map(|s| &s.0)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries whose key starts with `prefix`, from the bound on, in key order.
    pub fn scan<'a>(&'a self, prefix: &'a str, from: Bound<&'a str>) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        let from = match from {
            Bound::Included(key) | Bound::Excluded(key) if key < prefix => Bound::Included(prefix),
            Bound::Unbounded => Bound::Included(prefix),
            given => given,
        };
        self.entries
            .range::<_, str>((from, Bound::Unbounded))
            .map(|s| &s.0)
            .take_while(move |e| e.key.starts_with(prefix))
    }

    /// Makes the event's change.
    pub fn apply(&mut self, event: &Event) {
        if event.deleted {
            self.entries.remove(&*event.entry.key);
        } else {
            self.entries.insert(Slot(event.entry.clone()));
        }
        self.revision = event.entry.revision;
    }

    /// Takes the event's change back.
    pub fn undo(&mut self, event: &Event) {
        match &event.previous {
            Some(previous) => {
                self.entries.insert(Slot(previous.clone()));
            }
            None => {
                self.entries.remove(&*event.entry.key);
            }
        }
    }
}
