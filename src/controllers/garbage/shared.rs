//! [`SharedGraph`]: the graph behind a lock. Reactor threads wait for it, so it is held for short times only:
//! large changes are applied in batches, between which others get the lock.

use super::graph::{Graph, Item};
use crate::client::Change;
use crate::controllers::objects::Tracked;
use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};

/// References that are applied while the lock is held: about 50 µs.
const BATCH: usize = 64;
/// How often a change yields after a batch. Bounded, so that a stream of other changes cannot delay it forever.
const MAX_YIELDS: usize = 1000;

pub(super) struct SharedGraph<K> {
    graph: Mutex<Graph<K>>,
    /// The threads that wait for the lock.
    waiting: AtomicUsize,
}

impl<K> Default for SharedGraph<K> {
    fn default() -> Self {
        Self {
            graph: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl<K: Clone> SharedGraph<K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Graph<K>> {
        if let Some(graph) = self.graph.try_lock() {
            return graph;
        }
        // Relaxed suffices: a stale count makes `give_way` yield once too often or too seldom.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let graph = self.graph.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        graph
    }

    /// Applies a change of one object, and returns the items to examine. The changes of one object must not
    /// overlap; an informer reports one after the other.
    pub(super) fn change(&self, resource: &K, change: &Change<'_, Tracked>) -> Vec<Item> {
        self.change_in_batches(resource, change, || self.give_way())
    }

    /// Calls `between` after each batch but the last one, without the lock.
    fn change_in_batches(&self, resource: &K, change: &Change<'_, Tracked>, between: impl Fn()) -> Vec<Item> {
        let replaced = self.lock().replace(resource, change.key, change.old, change.new);
        // Without the lock: planning hashes all references.
        let mut plan = replaced.plan(change.key);
        loop {
            let more = self.lock().apply(&mut plan, BATCH);
            if !more {
                return plan.into_items();
            }
            between();
        }
    }

    /// Lets the threads that wait take the lock. It is not fair: without this, the thread that returns it
    /// usually gets it again.
    fn give_way(&self) {
        for _ in 0..MAX_YIELDS {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::objects::OwnerReference;
    use crate::storage::Revision;
    use std::sync::Arc;

    #[test]
    fn the_graph_is_available_while_a_large_change_is_applied() {
        const MANY: usize = 10_000;
        let graph: SharedGraph<()> = SharedGraph::default();
        let owner = |n: usize| OwnerReference {
            uid: format!("{n:06}").into(),
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "o".into(),
            controller: None,
            blocks: None,
        };
        let object = Arc::new(Tracked {
            uid: "u".into(),
            revision: Revision(1),
            owners: (0..MANY).map(owner).collect(),
            deleting: false,
            orphans: false,
            foreground: false,
        });
        let change = Change {
            key: "x/u",
            old: None,
            new: Some(&object),
        };
        let linked = |n: usize| {
            graph
                .graph
                .try_lock()
                .map(|g| g.has_dependents(&format!("{n:06}").into()))
        };
        let turns = std::cell::Cell::new(0);
        graph.change_in_batches(&(), &change, || {
            turns.set(turns.get() + 1);
            let batch = turns.get() * BATCH;
            assert_eq!((linked(batch - 1), linked(batch)), (Some(true), Some(false)));
        });
        assert_eq!(turns.get(), MANY.div_ceil(BATCH) - 1);
        assert_eq!(linked(MANY - 1), Some(true));
    }
}
