//! [`Graph`]: which objects refer to which owners, and which of them a change affects.
//!
//! Only objects with owners, and objects that are deleted after their dependents, are nodes. An owner is
//! known by the UID in the references to it; whether it exists is determined by a read when a reference to it
//! is first seen, and cached until it is deleted.
//!
//! Each change costs time in the number of the object's own references, of which a client may send tens of
//! thousands. So a change replaces the node ([`Graph::replace`]), plans the rest without the graph
//! ([`Replaced::plan`]), and applies the plan in batches ([`Graph::apply`]), between which others can use the
//! graph. The node comes first: a worker that examines the object meanwhile sees all of its references.

use crate::apimachinery::value::Str;
use crate::controllers::objects::{OwnerReference, Tracked, Uid};
use std::collections::{BTreeMap, HashSet};
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

/// Ordered maps: a hash map with all objects of a cluster would move them all in one insertion when it grows, under the
/// lock and on a reactor.
#[derive(Debug)]
pub(crate) struct Graph<K> {
    nodes: BTreeMap<Uid, Node<K>>,
    owners: BTreeMap<Uid, Owner>,
}

/// A node that was replaced. Its references still have to follow; see [`Self::plan`].
#[must_use]
pub(crate) struct Replaced {
    /// The object that is gone, and its node if it had one.
    gone: Option<(Uid, Option<Arc<Tracked>>)>,
    before: Option<Arc<Tracked>>,
    new: Option<Arc<Tracked>>,
}

/// A change of one reference.
#[derive(Debug)]
enum Step {
    /// The object refers to the owner; `new` has the coordinates of a reference that was added.
    Link {
        owner: Uid,
        blocks: bool,
        new: Option<Coordinates>,
    },
    /// It still does, but may no longer block.
    Keep {
        owner: Uid,
    },
    Unlink {
        owner: Uid,
    },
    /// The object is gone.
    Gone,
}

/// The changes of the references of an object.
#[derive(Debug)]
struct References {
    of: Uid,
    steps: std::vec::IntoIter<Step>,
    /// Whether the object is to be examined.
    examine: bool,
}

/// The rest of a change.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The references of the replaced object, then those of the new one.
    references: Vec<References>,
    items: Vec<Item>,
}

impl<K> Default for Graph<K> {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            owners: BTreeMap::new(),
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

impl Replaced {
    /// Compares the references before and after the change.
    pub(crate) fn plan(self, key: &str) -> Plan {
        let mut plan = Plan::default();
        if let Some((uid, node)) = self.gone {
            let owners = node.iter().flat_map(|n| &n.owners);
            let unlinked = owners.map(|r| Step::Unlink { owner: r.uid.clone() });
            plan.push(uid, unlinked.chain([Step::Gone]).collect());
        }
        let Some(new) = self.new else { return plan };
        let before = self.before.as_deref();
        plan.push(
            new.uid.clone(),
            steps(key, before.map_or(&[], |b| &b.owners), &new.owners),
        );
        // Only on the transition; later changes of an object that waits need no further pass.
        let began = |of: fn(&Tracked) -> bool| of(&new) && !before.is_some_and(of);
        if began(Tracked::waits_for_orphans) {
            plan.items.push(Item::Orphan(new.uid.clone()));
        } else if began(|o| o.waits_for_dependents() && !o.orphans) {
            plan.items.push(Item::Owner(new.uid.clone()));
        }
        plan
    }
}

/// The changes from old references to new ones.
fn steps(key: &str, old: &[OwnerReference], new: &[OwnerReference]) -> Vec<Step> {
    if *old == *new {
        return Vec::new();
    }
    // Sets, because a client may send tens of thousands of references: comparing each with each is quadratic.
    let known: HashSet<&OwnerReference> = old.iter().collect();
    let kept: HashSet<&Uid> = new.iter().map(|r| &r.uid).collect();
    let blocking: HashSet<&Uid> = new.iter().filter(|r| r.is_blocking()).map(|r| &r.uid).collect();
    let links = new.iter().map(|r| Step::Link {
        owner: r.uid.clone(),
        blocks: blocking.contains(&r.uid),
        new: (!known.contains(r)).then(|| Coordinates::of(r, key)),
    });
    let rest = old.iter().map(|r| match (kept.contains(&r.uid), r.uid.clone()) {
        (true, owner) => Step::Keep { owner },
        (false, owner) => Step::Unlink { owner },
    });
    // Links first: an owner that is kept must not become empty, and lose what is cached of it, in between.
    links.chain(rest).collect()
}

impl Plan {
    fn push(&mut self, of: Uid, steps: Vec<Step>) {
        self.references.push(References {
            of,
            steps: steps.into_iter(),
            examine: false,
        });
    }

    /// The items to examine, once the plan is applied.
    pub(crate) fn into_items(self) -> Vec<Item> {
        let mut items = self.items;
        let examined = self.references.into_iter().filter(|r| r.examine);
        items.extend(examined.map(|r| Item::Object(r.of)));
        items
    }
}

impl<K: Clone> Graph<K> {
    /// Applies the part of a change that does not depend on the number of the object's references.
    pub(crate) fn replace(
        &mut self,
        resource: &K,
        key: &str,
        old: Option<&Arc<Tracked>>,
        new: Option<&Arc<Tracked>>,
    ) -> Replaced {
        // Also an object of the same name that was deleted and created while the watch was interrupted.
        let gone = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
        let gone = gone.map(|old| (old.uid.clone(), self.nodes.remove(&old.uid).map(|n| n.object)));
        let before = new.and_then(|new| match new.is_node() {
            true => {
                let node = Node {
                    resource: resource.clone(),
                    key: key.into(),
                    object: new.clone(),
                };
                self.nodes.insert(new.uid.clone(), node)
            }
            false => self.nodes.remove(&new.uid),
        });
        Replaced {
            gone,
            before: before.map(|n| n.object),
            new: new.cloned(),
        }
    }

    /// Applies up to `most` steps of a plan. Returns whether any are left.
    pub(crate) fn apply(&mut self, plan: &mut Plan, most: usize) -> bool {
        let mut left = most;
        for references in &mut plan.references {
            while let Some(step) = (left > 0).then(|| references.steps.next()).flatten() {
                left -= 1;
                references.examine |= self.step(&references.of, step, &mut plan.items);
            }
        }
        plan.references.iter().any(|r| r.steps.len() > 0)
    }

    /// Returns whether the object has to be examined.
    fn step(&mut self, of: &Uid, step: Step, items: &mut Vec<Item>) -> bool {
        match step {
            Step::Link { owner, blocks, new } => return self.link(of, &owner, blocks, new),
            Step::Keep { owner } => self.note_unblocked(owner, items),
            Step::Unlink { owner } => {
                self.unlink(of, &owner);
                self.note_unblocked(owner, items);
            }
            Step::Gone => {
                // Without an entry it has no dependents to examine.
                if let Some(owner) = self.owners.get_mut(of) {
                    owner.gone = true;
                    // Nothing may be confirmed for it any more.
                    owner.found.clear();
                    items.push(Item::Owner(of.clone()));
                }
            }
        }
        false
    }

    fn link(&mut self, of: &Uid, uid: &Uid, blocks: bool, new: Option<Coordinates>) -> bool {
        let owner = self.owners.entry(uid.clone()).or_default();
        // Several references to one owner are one dependent; the count must not drift.
        if let Some(blocked) = owner.dependents.insert(of.clone(), blocks) {
            owner.blocking -= usize::from(blocked);
        }
        owner.blocking += usize::from(blocks);
        let Some(at) = new else { return false };
        let found = !owner.gone && owner.found.contains(&at);
        // An owner that is already being deleted takes new dependents with it.
        !found || self.waits_for_dependents(uid)
    }

    /// An owner that waits for its dependents may have lost the last one that blocks it.
    fn note_unblocked(&self, owner: Uid, items: &mut Vec<Item>) {
        if self.waits_for_dependents(&owner) && !self.is_blocked(&owner) {
            items.push(Item::Owner(owner));
        }
    }

    fn unlink(&mut self, dependent: &Uid, uid: &Uid) {
        let Some(owner) = self.owners.get_mut(uid) else { return };
        if let Some(blocked) = owner.dependents.remove(dependent) {
            owner.blocking -= usize::from(blocked);
        }
        if owner.dependents.is_empty() {
            // Owners without dependents are not stored: the graph is as large as the references, not as the cluster.
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

    // An entry exists only while it has dependents; see `unlink`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Revision;

    const MANY: usize = 50_000;

    fn object(owners: impl Iterator<Item = usize>) -> Arc<Tracked> {
        let owners = owners.map(|n| OwnerReference {
            uid: format!("owner-{n}").into(),
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "o".into(),
            controller: None,
            blocks: Some(n % 2 == 0),
        });
        Arc::new(Tracked {
            uid: "u".into(),
            revision: Revision(1),
            owners: owners.collect(),
            deleting: false,
            orphans: false,
            foreground: false,
        })
    }

    /// Applies a change in batches; returns their number and the items.
    fn apply(graph: &mut Graph<()>, old: Option<&Arc<Tracked>>, new: Option<&Arc<Tracked>>) -> (usize, Vec<Item>) {
        let mut plan = graph.replace(&(), "x/u", old, new).plan("x/u");
        let mut batches = 1;
        while graph.apply(&mut plan, 64) {
            batches += 1;
        }
        (batches, plan.into_items())
    }

    /// With a comparison of each reference with each other one, this takes minutes.
    #[test]
    fn a_change_takes_linear_time_and_is_applied_in_batches() {
        let mut graph = Graph::default();
        let first = object(0..MANY);
        let (batches, items) = apply(&mut graph, None, Some(&first));
        assert_eq!((batches, items), (MANY.div_ceil(64), vec![Item::Object("u".into())]));
        let second = object((1..=MANY).rev());
        let (batches, items) = apply(&mut graph, Some(&first), Some(&second));
        assert_eq!(
            (batches, items),
            ((2 * MANY).div_ceil(64), vec![Item::Object("u".into())])
        );
        assert!(!graph.has_dependents(&"owner-0".into()) && graph.has_dependents(&"owner-1".into()));
        assert!(graph.is_blocked(&"owner-2".into()) && !graph.is_blocked(&"owner-1".into()));
        let (batches, items) = apply(&mut graph, Some(&second), Some(&second));
        assert_eq!((batches, items), (1, vec![]), "the references are the same");
        let (batches, _) = apply(&mut graph, Some(&second), None);
        assert_eq!((batches, graph.owners.len()), ((MANY + 1).div_ceil(64), 0));
    }

    #[test]
    fn an_object_that_is_examined_while_its_references_are_applied_has_all_of_them() {
        let mut graph = Graph::default();
        let object = object(0..100);
        let mut plan = graph.replace(&(), "x/u", None, Some(&object)).plan("x/u");
        assert!(graph.apply(&mut plan, 1));
        assert_eq!(graph.node(&"u".into()).map(|n| n.object.owners.len()), Some(100));
    }
}
