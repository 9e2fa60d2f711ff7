//! The graph and the rule together, against a reference model: in the end an object exists unless it was deleted
//! or all of its owners are.

use super::examine::{Standing, Verdict, verdict};
use super::graph::{Coordinates, Graph, Item};
use crate::controllers::objects::{OwnerReference, Tracked, Uid};
use crate::storage::Revision;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An action of a user on one of a few objects.
#[derive(Clone, Debug)]
enum Action {
    /// Creates the object, with references to objects that need not exist. The flags are
    /// `blockOwnerDeletion`.
    Create(usize, Vec<(usize, bool)>),
    Delete(usize, Policy),
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    Background,
    Foreground,
    Orphan,
}

fn uid(n: usize) -> Uid {
    format!("{n:02}").into()
}

/// A cluster in which the collector's work is done in an arbitrary order.
#[derive(Default)]
struct Cluster {
    graph: Graph<()>,
    objects: BTreeMap<Uid, Arc<Tracked>>,
    pending: Vec<Item>,
}

impl Cluster {
    fn write(&mut self, uid: &Uid, new: Option<Tracked>) {
        let new = new.map(Arc::new);
        let old = match &new {
            Some(new) => self.objects.insert(uid.clone(), new.clone()),
            None => self.objects.remove(uid),
        };
        if old != new {
            let replaced = self.graph.replace(&(), uid, old.as_ref(), new.as_ref());
            let mut plan = replaced.plan(uid);
            while self.graph.apply(&mut plan, 1) {}
            self.pending.extend(plan.into_items());
        }
    }

    /// A delete, as the server carries it out.
    fn delete(&mut self, uid: &Uid, policy: Policy) {
        let Some(object) = self.objects.get(uid) else { return };
        let mut marked = Tracked {
            deleting: true,
            ..Tracked::clone(object)
        };
        match policy {
            Policy::Background if !marked.foreground && !marked.orphans => return self.write(uid, None),
            Policy::Background => {}
            Policy::Foreground => marked.foreground = true,
            Policy::Orphan => marked.orphans = true,
        }
        self.write(uid, Some(marked));
    }

    fn set_owners(&mut self, uid: &Uid, keep: impl Fn(&OwnerReference) -> bool) {
        let object = Tracked::clone(&self.objects[uid]);
        let owners = object.owners.iter().filter(|r| keep(r)).cloned().collect();
        self.write(uid, Some(Tracked { owners, ..object }));
    }

    fn standing(&mut self, uid: &Uid, reference: &OwnerReference) -> Standing {
        match self.objects.get(&reference.uid) {
            _ if self.graph.is_gone(&reference.uid) => Standing::Dangling,
            None => Standing::Dangling,
            Some(owner) if owner.waits_for_dependents() => Standing::Waiting,
            Some(_) => {
                self.graph.confirm(&reference.uid, Coordinates::of(reference, uid));
                Standing::Solid
            }
        }
    }

    /// The workers' part: processes one item.
    fn work(&mut self, item: Item) {
        match item {
            Item::Object(uid) => {
                let Some(object) = self.graph.node(&uid).map(|n| n.object.clone()) else {
                    return;
                };
                if object.deleting {
                    if object.waits_for_dependents() {
                        self.pending.push(Item::Owner(uid));
                    }
                    return;
                }
                let standings: Vec<_> = object.owners.iter().map(|r| self.standing(&uid, r)).collect();
                match verdict(&standings, &object, self.graph.has_dependents(&uid)) {
                    Verdict::Keep => {}
                    Verdict::Release => {
                        let solid: BTreeSet<Uid> = object
                            .owners
                            .iter()
                            .zip(&standings)
                            .filter(|(_, s)| **s == Standing::Solid)
                            .map(|(r, _)| r.uid.clone())
                            .collect();
                        self.set_owners(&uid, |r| solid.contains(&r.uid));
                    }
                    Verdict::Delete("Foreground") => self.delete(&uid, Policy::Foreground),
                    Verdict::Delete("Orphan") => self.delete(&uid, Policy::Orphan),
                    Verdict::Delete(_) => self.delete(&uid, Policy::Background),
                }
            }
            Item::Owner(uid) => {
                let waits = self.graph.node(&uid).is_some_and(|n| n.object.waits_for_dependents());
                if waits && !self.graph.is_blocked(&uid) {
                    return self.write(&uid, None);
                }
                if waits || self.graph.is_gone(&uid) {
                    let dependents = self.graph.dependents_after(&uid, None, usize::MAX);
                    self.pending.extend(dependents.into_iter().map(Item::Object));
                }
            }
            Item::Orphan(uid) => {
                for dependent in self.graph.dependents_after(&uid, None, usize::MAX) {
                    self.set_owners(&dependent, |r| r.uid != uid);
                }
                if self.objects.get(&uid).is_some_and(|o| o.waits_for_orphans()) {
                    self.write(&uid, None);
                }
            }
        }
    }

    fn settle(&mut self, order: &mut impl Iterator<Item = usize>) {
        for _ in 0..10_000 {
            if self.pending.is_empty() {
                return;
            }
            // Any order must lead to the same result, as workers run concurrently.
            let at = order.next().unwrap_or(0) % self.pending.len();
            let item = self.pending.swap_remove(at);
            // A queue holds an item once.
            self.pending.retain(|other| *other != item);
            self.work(item);
        }
        panic!("the collector never settles: {:?}", self.pending);
    }
}

/// References point to lower numbers, so there are no cycles, which would never be collected.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let create = (1usize..10).prop_flat_map(|n| {
        let references = prop::collection::btree_map(0..n, any::<bool>(), 0..3);
        references.prop_map(move |r| Action::Create(n, r.into_iter().collect()))
    });
    let policy = prop_oneof![Just(Policy::Background), Just(Policy::Foreground), Just(Policy::Orphan)];
    let delete = (0usize..10, policy).prop_map(|(n, policy)| Action::Delete(n, policy));
    prop::collection::vec(prop_oneof![2 => create, 1 => delete], 1..30)
}

/// The reference model. Each action is followed by the collection of everything that became garbage.
fn expected(actions: &[Action]) -> BTreeSet<Uid> {
    let mut objects: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut deleted = BTreeSet::new();
    for action in actions {
        match action {
            Action::Create(n, owners) if !deleted.contains(n) && !objects.contains_key(n) => {
                objects.insert(*n, owners.iter().map(|(o, _)| *o).collect());
            }
            Action::Create(..) => {}
            Action::Delete(n, policy) => {
                if objects.remove(n).is_none() {
                    continue;
                }
                deleted.insert(*n);
                if let Policy::Orphan = policy {
                    objects.values_mut().for_each(|owners| {
                        owners.remove(n);
                    });
                }
            }
        }
        // An object that has lost its last reference has no owners any more, and stays.
        let had_none: BTreeSet<usize> = objects.iter().filter(|(_, o)| o.is_empty()).map(|(n, _)| *n).collect();
        loop {
            let exists: BTreeSet<usize> = objects.keys().copied().collect();
            let garbage = |n: &usize, owners: &BTreeSet<usize>| !had_none.contains(n) && owners.is_disjoint(&exists);
            let gone: Vec<usize> = objects.iter().filter(|(n, o)| garbage(n, o)).map(|(n, _)| *n).collect();
            if gone.is_empty() {
                // An object that stays loses the references to owners that do not exist.
                objects
                    .values_mut()
                    .for_each(|owners| owners.retain(|o| exists.contains(o)));
                break;
            }
            for n in gone {
                objects.remove(&n);
                deleted.insert(n);
            }
        }
    }
    objects.keys().map(|n| uid(*n)).collect()
}

proptest! {
    #[test]
    fn owned_objects_and_roots_remain(actions in actions(), order in prop::collection::vec(any::<usize>(), 200)) {
        let mut cluster = Cluster::default();
        let mut order = order.into_iter();
        let mut created = BTreeSet::new();
        for action in &actions {
            match action {
                // A UID is never used twice.
                Action::Create(n, owners) if created.insert(*n) => {
                    let owners = owners.iter().map(|(o, blocks)| OwnerReference {
                        uid: uid(*o),
                        api_version: "v1".into(),
                        kind: "K".into(),
                        name: "o".into(),
                        controller: None,
                        blocks: Some(*blocks),
                    });
                    let object = Tracked {
                        uid: uid(*n),
                        revision: Revision(1),
                        owners: owners.collect(),
                        deleting: false,
                        orphans: false,
                        foreground: false,
                    };
                    cluster.write(&uid(*n), Some(object));
                }
                Action::Create(..) => {}
                Action::Delete(n, policy) => cluster.delete(&uid(*n), *policy),
            }
            cluster.settle(&mut order);
        }
        let exists: BTreeSet<Uid> = cluster.objects.keys().cloned().collect();
        prop_assert_eq!(exists, expected(&actions));
    }
}
