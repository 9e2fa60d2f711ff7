//! The state of one resource at one revision: a persistent ordered set, so that a copy costs a pointer.

use crate::apimachinery::value::Str;
use crate::storage::{Entry, Event, Predicate, Revision};
use imbl::{OrdMap, OrdSet};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
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

/// The selectable field that is indexed where objects have it: upstream's only index of built-in resources (pods and
/// resource slices of a node).
pub(super) const INDEXED: &str = "spec.nodeName";

fn indexed(e: &Entry) -> Option<&Str> {
    e.fields.iter().find(|(k, _)| k == INDEXED).map(|(_, v)| v)
}

/// All objects of a resource, by key. Cloning is cheap; clones don't see each other's changes.
#[derive(Clone)]
pub struct Snapshot {
    entries: OrdSet<Slot>,
    /// By the value of the indexed field; objects without it are in none.
    index: OrdMap<Str, OrdSet<Slot>>,
    nothing: OrdSet<Slot>,
    /// Bytes of memory the objects take.
    bytes: usize,
    /// Everything of this resource up to here is in it.
    pub revision: Revision,
}

impl Snapshot {
    /// Of these entries, in any order.
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

    /// The same state, known to be that of a later revision too.
    pub fn at(&self, revision: Revision) -> Self {
        Self {
            revision,
            ..self.clone()
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

    /// Bytes of memory the objects take, with what is parsed beside them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries whose key starts with `prefix`, from the bound on, in key order.
    pub fn scan<'a>(&'a self, prefix: &'a str, from: Bound<&'a str>) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        range(&self.entries, prefix, from)
    }

    /// True where [`candidates`](Self::candidates) looks into the index.
    pub fn is_indexed(predicate: &Predicate) -> bool {
        predicate.requires(INDEXED).is_some_and(|value| !value.is_empty())
    }

    /// The same, of those that may be selected: an index may have left others out.
    pub fn candidates<'a>(
        &'a self,
        predicate: &Predicate,
        prefix: &'a str,
        from: Bound<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        let of = match predicate.requires(INDEXED) {
            // Objects without the field may be meant by the empty value.
            None | Some("") => &self.entries,
            Some(value) => self.index.get(value).unwrap_or(&self.nothing),
        };
        range(of, prefix, from)
    }

    fn set(&mut self, key: &str, now: Option<&Arc<Entry>>) {
        let was = match now {
            Some(entry) => self.entries.insert(Slot(entry.clone())),
            None => self.entries.remove(key),
        };
        let size = |e: &Arc<Entry>| e.footprint();
        self.bytes += now.map_or(0, size);
        self.bytes = self.bytes.saturating_sub(was.as_ref().map_or(0, |s| size(&s.0)));
        let value = now.and_then(|e| indexed(e));
        let before = was.as_ref().and_then(|s| indexed(&s.0));
        if let Some(before) = before.filter(|b| value != Some(*b))
            && let Some(of) = self.index.get_mut(before)
        {
            of.remove(key);
            if of.is_empty() {
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

    /// Makes the event's change.
    pub fn apply(&mut self, event: &Event) {
        self.set(&event.entry.key, (!event.deleted).then_some(&event.entry));
        self.revision = event.entry.revision;
    }

    /// Takes the event's change back.
    pub fn undo(&mut self, event: &Event) {
        self.set(&event.entry.key, event.previous.as_ref());
    }
}

fn range<'a>(of: &'a OrdSet<Slot>, prefix: &'a str, from: Bound<&'a str>) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
    let from = match from {
        Bound::Included(key) | Bound::Excluded(key) if key < prefix => Bound::Included(prefix),
        Bound::Unbounded => Bound::Included(prefix),
        given => given,
    };
    of.range::<_, str>((from, Bound::Unbounded))
        .map(|s| &s.0)
        .take_while(move |e| e.key.starts_with(prefix))
}
