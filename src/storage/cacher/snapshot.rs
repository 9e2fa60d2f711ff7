//! [`Snapshot`]: the state of one resource at one revision, in persistent ordered sets, so that a copy costs
//! a few pointers.

use crate::apimachinery::value::Str;
use crate::storage::{Entry, Event, Predicate, Revision};
use imbl::{OrdMap, OrdSet};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, Deref};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Objects of a snapshot that are freed where it is dropped.
const FREED_IN_PLACE: usize = 1024;

/// An entry ordered by its key, so that the set needs no second copy of the key.
#[derive(Clone)]
struct Slot(Arc<Entry>);

// Lookups by key need no entry.
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

/// The indexed selectable field, for resources that have it. Upstream's only index on built-in resources
/// (Pods and ResourceSlices by node).
pub(super) const INDEXED: &str = "spec.nodeName";

fn indexed(e: &Entry) -> Option<&Str> {
    e.fields.iter().find(|(k, _)| k == INDEXED).map(|(_, v)| v)
}

/// All objects of a resource, by key. Cloning is cheap; clones are independent.
#[derive(Clone)]
pub struct Snapshot {
    entries: OrdSet<Slot>,
    /// Entries by the value of the indexed field. Objects without the field are not in the index.
    index: OrdMap<Str, OrdSet<Slot>>,
    // An owned empty set, so that `candidates` can return a reference in any case.
    nothing: OrdSet<Slot>,
    /// Memory footprint of the objects, in bytes.
    bytes: usize,
    /// All changes of this resource up to this revision are included.
    pub revision: Revision,
}

impl Snapshot {
    /// Builds a state from entries in any order.
    pub fn new(entries: Vec<Arc<Entry>>, revision: Revision) -> Self {
        let mut by_value: BTreeMap<&Str, Vec<Slot>> = BTreeMap::new();
        for e in &entries {
            if let Some(value) = indexed(e) {
                by_value.entry(value).or_default().push(Slot(e.clone()));
            }
        }
        let of_value = |(value, of): (&Str, Vec<Slot>)| (value.clone(), of.into_iter().collect::<OrdSet<Slot>>());
        let index = by_value.into_iter().map(of_value);
        let (index, bytes) = (index.collect(), entries.iter().map(|e| e.footprint()).sum());
        Self {
            entries: entries.into_iter().map(Slot).collect(),
            index,
            nothing: OrdSet::new(),
            bytes,
            revision,
        }
    }

    /// The same state at a later revision; valid if the resource has not changed in between.
    pub fn at(&self, revision: Revision) -> Self {
        Self {
            revision,
            // Takes constant time: the trees are shared.
            ..self.clone()
        }
    }

    /// Returns the entry at `key`.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key).map(|s| &s.0)
    }

    /// Number of entries, whatever their prefix.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory footprint of the objects in bytes, including parsed labels and fields.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries whose key starts with `prefix`, beginning at `from`, in key order.
    pub fn scan<'a>(&'a self, prefix: &'a str, from: Bound<&'a str>) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        range(&self.entries, prefix, from)
    }

    /// True if [`candidates`](Self::candidates) uses the index.
    pub fn is_indexed(predicate: &Predicate) -> bool {
        predicate.requires(INDEXED).is_some_and(|value| !value.is_empty())
    }

    /// As [`scan`](Self::scan), but may use the index to skip entries that the predicate cannot select.
    pub fn candidates<'a>(
        &'a self,
        predicate: &Predicate,
        prefix: &'a str,
        from: Bound<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        let of = match predicate.requires(INDEXED) {
            // An empty value also selects objects without the field, which the index does not contain.
            None | Some("") => &self.entries,
            Some(value) => self.index.get(value).unwrap_or(&self.nothing),
        };
        range(of, prefix, from)
    }

    fn set(&mut self, key: &str, now: Option<&Arc<Entry>>) {
        // `OrdSet::insert` replaces an equal element and returns the old one, unlike the sets of std.
        let was = match now {
            Some(entry) => self.entries.insert(Slot(entry.clone())),
            None => self.entries.remove(key),
        };
        let size = |e: &Arc<Entry>| e.footprint();
        self.bytes += now.map_or(0, size);
        self.bytes = self.bytes.saturating_sub(was.as_ref().map_or(0, |s| size(&s.0)));
        let value = now.and_then(|e| indexed(e));
        let before = was.as_ref().and_then(|s| indexed(&s.0));
        // Unchanged values are overwritten below; removing them first would copy the nodes twice.
        if let Some(before) = before.filter(|b| value != Some(*b))
            && let Some(of) = self.index.get_mut(before)
        {
            of.remove(key);
            if of.is_empty() {
                // Nodes come and go in a large cluster; empty sets would stay for ever.
                self.index.remove(before);
            }
        }
        if let (Some(value), Some(entry)) = (value, now) {
            match self.index.get_mut(value) {
                Some(of) => {
                    of.insert(Slot(entry.clone()));
                }
                None => {
                    self.index.insert(value.clone(), OrdSet::unit(Slot(entry.clone())));
                }
            }
        }
    }

    /// Applies the event's change.
    pub fn apply(&mut self, event: &Event) {
        self.set(&event.entry.key, (!event.deleted).then_some(&event.entry));
        self.revision = event.entry.revision;
    }

    /// Reverts the event's change. The caller sets the revision.
    pub fn undo(&mut self, event: &Event) {
        self.set(&event.entry.key, event.previous.as_ref());
    }
}

/// A snapshot that is kept while the state changes, so that it may be the last to hold a hundred thousand objects.
/// Freeing them takes tens of milliseconds, which a reactor leaves to another thread.
pub(super) struct Held(Snapshot);

impl Held {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self(snapshot)
    }
}

impl Deref for Held {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The committer has no runtime, and is no reactor.
        if self.0.len() > FREED_IN_PLACE
            && let Ok(runtime) = Handle::try_current()
        {
            let nothing = Snapshot::new(Vec::new(), self.0.revision);
            let snapshot = std::mem::replace(&mut self.0, nothing);
            drop(runtime.spawn_blocking(move || drop(snapshot)));
        }
    }
}

fn range<'a>(of: &'a OrdSet<Slot>, prefix: &'a str, from: Bound<&'a str>) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
    let from = match from {
        // A start before the prefix begins at the prefix; one after it, at itself.
        Bound::Included(key) | Bound::Excluded(key) if key < prefix => Bound::Included(prefix),
        Bound::Unbounded => Bound::Included(prefix),
        given => given,
    };
    of.range::<_, str>((from, Bound::Unbounded))
        .map(|s| &s.0)
        // Keys with the prefix are adjacent.
        .take_while(move |e| e.key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::Draft;
    use std::sync::mpsc;

    #[test]
    fn many_objects_are_freed_on_a_blocking_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let held = |objects: usize| {
            let object = json!({"metadata": {"name": "a"}});
            let entry = |n: usize| Arc::new(Draft::new(&object, Vec::new()).into_entry(&n.to_string(), Revision(1)));
            let entries: Vec<Arc<Entry>> = (0..objects).map(entry).collect();
            let first = Arc::downgrade(&entries[0]);
            (Held::new(Snapshot::new(entries, Revision(1))), first)
        };
        let (few, first_of_few) = held(FREED_IN_PLACE);
        let (many, first_of_many) = held(FREED_IN_PLACE + 1);
        let (go, wait) = mpsc::channel::<()>();
        runtime.block_on(async move {
            // Occupies the only blocking thread until the sender is dropped.
            let busy = tokio::task::spawn_blocking(move || wait.recv());
            drop((few, many));
            assert!(first_of_few.upgrade().is_none());
            assert!(first_of_many.upgrade().is_some());
            drop(go);
            assert!(busy.await.unwrap().is_err());
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(first_of_many.upgrade().is_none());
        });
    }
}
