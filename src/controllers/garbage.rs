//! The garbage collector (`pkg/controller/garbagecollector`): deletes objects whose owners are gone, and
//! carries out foreground and orphaning deletion.
//!
//! The informers of all resources feed the [`Graph`]; the objects that a change affects go to work queues.
//! `examine` decides about one object with owners, `owners` about one owner with dependents. Objects of
//! aggregated API servers are not followed, but may be owners.

mod examine;
mod graph;
mod misplaced;
mod owners;
mod seen;
mod shared;

use super::discovery::Discovered;
use super::events::Recorder;
use super::loopback::{Failure, JSON, Loopback, MERGE_PATCH, encode, found};
use super::namespaces::Namespace;
use super::objects::{Objects, OwnerReference, Resource, Tracked, Uid};
use super::sized;
use super::term::Term;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::Value;
use crate::client::{Change, Informer};
use crate::json;
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::WorkQueue;
use bytes::Bytes;
use graph::{Graph, Item, Node};
use shared::SharedGraph;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

const DELETE: &str = "garbage_collector_attempt_to_delete";
const ORPHAN: &str = "garbage_collector_attempt_to_orphan";
/// More than upstream's 20: writes that are in progress together share one transaction of the store.
const WORKERS: usize = 64;
const ORPHAN_WORKERS: usize = 8;
/// Workers that wait for aggregated API servers at a time: one that does not answer must not take all of them.
const REMOTE_READS: usize = 16;
/// How long a kind that is not served is not looked for again. Anybody can write references to any number of them, and
/// looking for one reads all of discovery.
const UNSERVED_FOR: Duration = Duration::from_secs(1);
/// Dependents of one owner that are handled before the task yields.
const BATCH: usize = 64;
/// About as much as processing a reference costs, in bytes of an encoded object.
const REFERENCE: usize = 64;

/// State that the workers share.
struct Collector {
    graph: SharedGraph<Arc<Resource>>,
    objects: Arc<Objects>,
    delete: WorkQueue<Item>,
    orphan: WorkQueue<Item>,
    namespaces: Informer<Namespace>,
    events: Recorder,
    api: Loopback,
    /// The last discovery of the gateway, and its time.
    served: Mutex<Option<(Instant, Arc<Discovered>)>>,
    remote_reads: Semaphore,
}

/// Why an item is retried.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Request(#[from] Failure),
    #[error("unable to get REST mapping for {0}/{1}.")]
    UnknownKind(String, String),
    #[error("the owner cannot be read: {0}")]
    Storage(String),
    #[error("the object has changed")]
    Changed,
    #[error("too many owners are being read from aggregated API servers")]
    Busy,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(uid) => write!(f, "object {uid}"),
            Self::Owner(uid) => write!(f, "owner {uid}"),
            Self::Orphan(uid) => write!(f, "orphans of {uid}"),
        }
    }
}

pub(crate) fn start(term: &Term) {
    let api = term.client("generic-garbage-collector");
    let collector = Arc::new(Collector {
        graph: SharedGraph::default(),
        objects: term.objects().clone(),
        delete: term.queue(DELETE),
        orphan: term.queue(ORPHAN),
        namespaces: term.namespaces().clone(),
        events: Recorder::new(&api, "garbage-collector-controller"),
        api,
        served: Mutex::default(),
        remote_reads: Semaphore::new(REMOTE_READS),
    });
    // Weak, because the collector refers to the objects.
    let weak = Arc::downgrade(&collector);
    term.objects().observe(move |resource, change| {
        if let Some(collector) = weak.upgrade() {
            collector.note(resource, change);
        }
    });
    for (name, queue, workers) in [
        (DELETE, &collector.delete, WORKERS),
        (ORPHAN, &collector.orphan, ORPHAN_WORKERS),
    ] {
        let collector = collector.clone();
        term.process(name, queue, workers, move |item: Item| {
            let collector = collector.clone();
            async move {
                // Before that, an owner may be missing only because it was not read yet.
                collector.objects.ready().wait().await;
                match item {
                    Item::Object(uid) => collector.examine(&uid).await,
                    Item::Owner(uid) => collector.owner(&uid).await,
                    Item::Orphan(uid) => collector.orphan(&uid).await,
                }
            }
        });
    }
}

impl Collector {
    fn graph(&self) -> MutexGuard<'_, Graph<Arc<Resource>>> {
        self.graph.lock()
    }

    /// Follows a change of an object.
    fn note(&self, resource: &Arc<Resource>, change: &Change<'_, Tracked>) {
        let items = self.graph.change(resource, change);
        items.into_iter().for_each(|item| self.add(item));
    }

    fn add(&self, item: Item) {
        match item {
            Item::Orphan(_) => self.orphan.add(item),
            Item::Object(_) | Item::Owner(_) => self.delete.add(item),
        }
    }

    fn node(&self, uid: &Uid) -> Option<Node<Arc<Resource>>> {
        self.graph().node(uid).cloned()
    }

    /// The result of `read` for the current object; `None` if it was deleted or another one has its name.
    async fn live<T: Send + 'static>(
        &self,
        node: &Node<Arc<Resource>>,
        read: impl FnOnce(&Value) -> T + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let uid = node.object.uid.clone();
        let read = move |v: Value| (v.uid() == &*uid).then(|| read(&v));
        let live = self.api.extract(node.resource.path(&node.key), JSON, read).await;
        Ok(found(live)?.flatten())
    }

    /// Replaces the references of an object by what `keep` makes of them, if it has not changed since. Returns
    /// false if they stay the same.
    async fn set_owners(
        &self,
        node: &Node<Arc<Resource>>,
        keep: impl FnMut(&OwnerReference) -> Option<OwnerReference> + Send + 'static,
    ) -> Result<bool, Error> {
        let object = node.object.clone();
        // `kept` is compared before encoding: most examinations change nothing.
        let patch = sized::compute(object.owners.len() * REFERENCE, move || {
            let kept: Vec<OwnerReference> = object.owners.iter().filter_map(keep).collect();
            if *kept == *object.owners {
                return None;
            }
            let owners: Value = match kept.is_empty() {
                // In a merge patch, null removes the member.
                true => Value::Null,
                false => kept.iter().map(OwnerReference::to_value).collect::<Vec<_>>().into(),
            };
            let version = object.revision.0.to_string();
            let patch =
                // The UID makes the server refuse the patch for another object of the name, as upstream's
                // `generateDeleteOwnerRefStrategicMergeBytes`.
                json!({"metadata": {"uid": (&*object.uid), "resourceVersion": version, "ownerReferences": (owners)}});
            Some(encode(&patch))
        });
        match patch.await? {
            Some(patch) => self.patch(node, patch).await.map(|()| true),
            None => Ok(false),
        }
    }

    async fn patch(&self, node: &Node<Arc<Resource>>, patch: Bytes) -> Result<(), Error> {
        let path = node.resource.path(&node.key);
        match found(self.api.patch(path, MERGE_PATCH, patch).await) {
            // An error of its own, so that the item is retried with the node as the informer will report it.
            Err(e) if e.code == 409 => Err(Error::Changed),
            other => Ok(other.map(drop)?),
        }
    }

    /// Removes a finalizer of the collector.
    async fn remove_finalizer(&self, node: &Node<Arc<Resource>>, finalizer: &'static str) -> Result<(), Error> {
        // A merge patch replaces the whole list, so it is computed from the live object and bound to its version.
        let patch = self.live(node, move |live| {
            let all = live.at(&["metadata", "finalizers"]).items();
            let left: Vec<Value> = all.iter().filter(|f| f.as_str() != Some(finalizer)).cloned().collect();
            let version = live.at(&["metadata", "resourceVersion"]).clone();
            (left.len() < all.len())
                .then(|| encode(&json!({"metadata": {"resourceVersion": (version), "finalizers": (left)}})))
        });
        match patch.await?.flatten() {
            Some(patch) => self.patch(node, patch).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
