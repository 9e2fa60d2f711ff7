//! Opens and closes the storage of custom resources. [`Storages`] is implemented by the composition root;
//! [`Opened`] keeps what is open, and closes a removed resource before one of the same name is opened.

use crate::apimachinery::gvk::GroupResource;
use crate::storage::Storage;
use crate::sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The storage backends, as custom resources use them.
pub(crate) trait Storages: Send + Sync + 'static {
    /// Opens the storage of a resource. May block while stored objects are parsed.
    fn open(&self, resource: &GroupResource) -> Arc<dyn Storage>;

    /// Closes it: its watches end and its reads and writes are refused. May block until writes in progress
    /// have finished. No effect if it is not open.
    fn close(&self, resource: &GroupResource);
}

/// The open storages. The storage of a removed definition is closed before one of the same name is opened, so
/// that a definition that is created again does not get a storage that is about to end.
pub(super) struct Opened {
    storages: Arc<dyn Storages>,
    open: tokio::sync::Mutex<HashMap<GroupResource, Arc<dyn Storage>>>,
    removed: Mutex<HashSet<GroupResource>>,
    notify: Notify,
}

impl Opened {
    pub(crate) fn new(storages: Arc<dyn Storages>) -> Self {
        Self {
            storages,
            open: tokio::sync::Mutex::default(),
            removed: Mutex::default(),
            notify: Notify::new(),
        }
    }

    fn lock_removed(&self) -> crate::sync::MutexGuard<'_, HashSet<GroupResource>> {
        self.removed.lock()
    }

    /// The storage of a resource, for a definition that was `removed` or not. `None` if it was: nothing would close a
    /// storage that is opened for it. `None` also if the process is ending.
    ///
    /// # Cancel safety
    /// Cancel safe: if the storage was opened but not recorded, the next call returns it.
    pub(crate) async fn get(&self, resource: &GroupResource, removed: &AtomicBool) -> Option<Arc<dyn Storage>> {
        // An async lock, held while the storage opens: others wait for the result instead of opening it twice.
        let mut open = self.open.lock().await;
        // A definition that was deleted and created again must not get the old storage, which is about to end.
        self.close_one(&mut open, resource).await;
        // Only now: a removal that the call above has seen has set the flag, and a later one closes what is opened
        // here.
        if removed.load(Ordering::Acquire) {
            return None;
        }
        if let Some(known) = open.get(resource) {
            return Some(known.clone());
        }
        let (storages, of) = (self.storages.clone(), resource.clone());
        // Opening parses stored objects and may take seconds.
        let opened = tokio::task::spawn_blocking(move || storages.open(&of)).await.ok()?;
        open.insert(resource.clone(), opened.clone());
        Some(opened)
    }

    /// The storage of a resource that is open, without waiting. `None` also while one is being opened or
    /// closed.
    pub(crate) fn peek(&self, resource: &GroupResource) -> Option<Arc<dyn Storage>> {
        // Never waits: used where a missing answer only costs an optimisation.
        self.open.try_lock().ok()?.get(resource).cloned()
    }

    async fn close_one(&self, open: &mut HashMap<GroupResource, Arc<dyn Storage>>, resource: &GroupResource) {
        // The sync lock is released within the condition, so it is not held across the await.
        if !self.lock_removed().contains(resource) {
            return;
        }
        // Removed first, so that a dropped future cannot leave a closed storage in the map.
        open.remove(resource);
        let (storages, of) = (self.storages.clone(), resource.clone());
        // Also if it is not in the map: the call that opened it may have been dropped. Fails only if the
        // process is ending.
        let _ = tokio::task::spawn_blocking(move || storages.close(&of)).await;
        // Only now: if this future is dropped while closing, the next call closes again.
        self.lock_removed().remove(resource);
    }

    /// Notes that the definition of a resource was removed, also in its flag. To be called before another definition of
    /// the same name can be seen, since that one's storage would be closed as well.
    pub(crate) fn remove(&self, resource: GroupResource, removed: &AtomicBool) {
        // Before the note, as `get` relies on.
        removed.store(true, Ordering::Release);
        // Synchronous and cheap, since the informer's callback calls it.
        self.lock_removed().insert(resource);
        self.notify.notify_one();
    }

    /// Closes the storages of removed definitions. Never returns.
    pub(crate) async fn close_removed(&self) {
        loop {
            // Read and released before waiting for the other lock; the resource stays noted until it is closed.
            let next = self.lock_removed().iter().next().cloned();
            match next {
                Some(resource) => {
                    let mut open = self.open.lock().await;
                    self.close_one(&mut open, &resource).await;
                }
                // A permit is kept if a removal was noted between the check and this wait.
                None => self.notify.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::reviews::NoStorage;

    /// The recorded calls, in order.
    #[derive(Default)]
    struct Recorded(Mutex<Vec<&'static str>>);

    impl Storages for Recorded {
        fn open(&self, _: &GroupResource) -> Arc<dyn Storage> {
            self.0.lock().push("open");
            Arc::new(NoStorage)
        }

        fn close(&self, _: &GroupResource) {
            self.0.lock().push("close");
        }
    }

    #[tokio::test]
    async fn a_removed_definition_does_not_open_a_storage() {
        let recorded = Arc::new(Recorded::default());
        let opened = Opened::new(recorded.clone());
        let resource = GroupResource::new("x.io", "as");
        let (old, new) = (AtomicBool::new(false), AtomicBool::new(false));
        assert!(opened.get(&resource, &old).await.is_some());
        opened.remove(resource.clone(), &old);
        // A request that still has the definition: what it would open, nothing would close.
        assert!(opened.get(&resource, &old).await.is_none());
        assert_eq!(*recorded.0.lock(), ["open", "close"]);
        // One that was created again has a storage of its own, which stays.
        assert!(opened.get(&resource, &new).await.is_some());
        assert!(opened.get(&resource, &old).await.is_none());
        assert!(opened.get(&resource, &new).await.is_some());
        assert_eq!(*recorded.0.lock(), ["open", "close", "open"]);
    }
}
