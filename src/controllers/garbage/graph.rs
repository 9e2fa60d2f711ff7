//! [`Graph`]: which objects refer to which owners, and which of them a change affects.
//!
//! Only objects with owners, and objects that are deleted after their dependents, are nodes. An owner is
//! known by the UID in the references to it; whether it exists is determined by a read when a reference to it
//! is first seen, and cached until it is deleted. Each change costs time in the number of the object's own
//! references.

use crate::apimachinery::value::Str;
use crate::controllers::objects::{OwnerReference, Tracked, Uid};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Places remembered per owner. References in more namespaces or under more names are looked up each time.
const MAX_FOUND: usize = 16;

/// An item that has to be examined after a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Item {
    /// An object with owners: does one of them still exist?
    Object(Uid),
    /// An owner that is gone, or waits for its dependents.
    Owner(Uid),
    /// An owner that waits for its dependents to be orphaned.
    Orphan(Uid),
}

/// An object in the graph. `K` identifies its resource.
#[derive(Clone, Debug)]
pub(crate) struct Node<K> {
    pub resource: K,
    /// `<namespace>/<name>` or `<name>`.
    pub key: Arc<str>,
    pub object: Arc<Tracked>,
}

/// Where a reference looks for its owner. The UID alone is not enough: a reference with the right UID and
/// another name refers to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coordinates {
    pub group: Str,
    pub kind: Str,
    /// The namespace of the dependent.
    pub namespace: Str,
    pub name: Str,
}

#[derive(Debug, Default)]
struct Owner {
    /// Each with whether it blocks foreground deletion.
    dependents: BTreeMap<Uid, bool>,
    /// Number of dependents that block.
    blocking: usize,
    /// Where the owner was found, at most [`MAX_FOUND`] places: references to one owner rarely differ.
    found: Vec<Coordinates>,
    gone: bool,
}

#[derive(Debug)]
pub(crate) struct Graph<K> {
    nodes: HashMap<Uid, Node<K>>,
    owners: HashMap<Uid, Owner>,
}

impl<K> Default for Graph<K> {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            owners: HashMap::new(),
        }
    }
}

impl Coordinates {
    pub(crate) fn of(reference: &OwnerReference, key: &str) -> Self {
        Self {
            group: reference.group().into(),
            kind: reference.kind.clone(),
            namespace: key.split_once('/').map_or("", |(namespace, _)| namespace).into(),
            name: reference.name.clone(),
        }
    }
}

impl<K: Clone> Graph<K> {
    /// Applies a change of one object. Returns the items to examine.
    pub(crate) fn change(
        &mut self,
        resource: &K,
        key: &str,
        old: Option<&Arc<Tracked>>,
        new: Option<&Arc<Tracked>>,
    ) -> Vec<Item> {
        let mut items = Vec::new();
        // An object of the same name that was deleted and created while the watch was interrupted.
        let replaced = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
        if let Some(old) = replaced {
            self.remove(old, &mut items);
        }
        if let Some(new) = new {
            let before = self.nodes.get(&new.uid).map(|n| n.object.clone());
            self.link(key, before.as_deref(), new, &mut items);
            if new.is_node() {
                let node = Node {
                    resource: resource.clone(),
                    key: key.into(),
                    object: new.clone(),
                };
                self.nodes.insert(new.uid.clone(), node);
            } else {
                self.nodes.remove(&new.uid);
            }
            let began = |of: fn(&Tracked) -> bool| of(new) && !before.as_deref().is_some_and(of);
            if began(Tracked::waits_for_orphans) {
                items.push(Item::Orphan(new.uid.clone()));
            } else if began(|o| o.waits_for_dependents() && !o.orphans) {
                items.push(Item::Owner(new.uid.clone()));
            }
        }
        items
    }

    fn remove(&mut self, old: &Tracked, items: &mut Vec<Item>) {
        if let Some(node) = self.nodes.remove(&old.uid) {
            for reference in &node.object.owners {
                self.unlink(&old.uid, &reference.uid);
                if self.waits_for_dependents(&reference.uid) && !self.is_blocked(&reference.uid) {
                    items.push(Item::Owner(reference.uid.clone()));
                }
            }
        }
        if let Some(owner) = self.owners.get_mut(&old.uid) {
            owner.gone = true;
            owner.found.clear();
            items.push(Item::Owner(old.uid.clone()));
        }
    }

    /// Applies the change of an object's references.
    fn link(&mut self, key: &str, before: Option<&Tracked>, new: &Tracked, items: &mut Vec<Item>) {
        let old: &[OwnerReference] = before.map_or(&[], |b| &b.owners);
        if *old == *new.owners {
            return;
        }
        let mut examine = false;
        for reference in &new.owners {
            let blocks = new.owners.iter().any(|r| r.uid == reference.uid && r.is_blocking());
            let owner = self.owners.entry(reference.uid.clone()).or_default();
            if let Some(blocked) = owner.dependents.insert(new.uid.clone(), blocks) {
                owner.blocking -= usize::from(blocked);
            }
            owner.blocking += usize::from(blocks);
            let known = old.iter().any(|o| o == reference);
            let found = !owner.gone && owner.found.contains(&Coordinates::of(reference, key));
            // An owner that is already being deleted takes new dependents with it.
            let waits = self.waits_for_dependents(&reference.uid);
            examine |= !known && (!found || waits);
        }
        for reference in old {
            let kept = new.owners.iter().any(|r| r.uid == reference.uid);
            if !kept {
                self.unlink(&new.uid, &reference.uid);
            }
            if self.waits_for_dependents(&reference.uid) && !self.is_blocked(&reference.uid) {
                items.push(Item::Owner(reference.uid.clone()));
            }
        }
        if examine {
            items.push(Item::Object(new.uid.clone()));
        }
    }

    fn unlink(&mut self, dependent: &Uid, uid: &Uid) {
        let Some(owner) = self.owners.get_mut(uid) else { return };
        if let Some(blocked) = owner.dependents.remove(dependent) {
            owner.blocking -= usize::from(blocked);
        }
        if owner.dependents.is_empty() {
            self.owners.remove(uid);
        }
    }

    fn waits_for_dependents(&self, uid: &Uid) -> bool {
        self.nodes.get(uid).is_some_and(|n| n.object.waits_for_dependents())
    }

    /// An object that has owners or is deleted after its dependents.
    pub(crate) fn node(&self, uid: &Uid) -> Option<&Node<K>> {
        self.nodes.get(uid)
    }

    /// Up to `n` dependents of an owner that follow `after` in the order of UIDs.
    pub(crate) fn dependents_after(&self, owner: &Uid, after: Option<&Uid>, n: usize) -> Vec<Uid> {
        let Some(owner) = self.owners.get(owner) else {
            return Vec::new();
        };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = owner.dependents.range::<Uid, _>((start, Bound::Unbounded));
        rest.take(n).map(|(uid, _)| uid.clone()).collect()
    }

    pub(crate) fn has_dependents(&self, owner: &Uid) -> bool {
        self.owners.contains_key(owner)
    }

    /// Whether a dependent blocks the foreground deletion of the owner.
    pub(crate) fn is_blocked(&self, owner: &Uid) -> bool {
        self.owners.get(owner).is_some_and(|o| o.blocking > 0)
    }

    /// Whether the owner was deleted while it had dependents.
    pub(crate) fn is_gone(&self, owner: &Uid) -> bool {
        self.owners.get(owner).is_some_and(|o| o.gone)
    }

    /// Remembers where an owner was found, so that further dependents need no read.
    pub(crate) fn confirm(&mut self, owner: &Uid, at: Coordinates) {
        if let Some(owner) = self.owners.get_mut(owner)
            && !owner.gone
            && owner.found.len() < MAX_FOUND
            && !owner.found.contains(&at)
        {
            owner.found.push(at);
        }
    }
}
