//! Opening and closing the storage of custom resources.

use crate::apimachinery::gvk::GroupResource;
use crate::storage::Storage;
use crate::sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
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

    /// The storage of a resource; `None` if the process is ending.
    ///
    /// # Cancel safety
    /// Cancel safe: if the storage was opened but not recorded, the next call returns it.
    pub(crate) async fn get(&self, resource: &GroupResource) -> Option<Arc<dyn Storage>> {
        let mut open = self.open.lock().await;
        self.close_one(&mut open, resource).await;
        if let Some(known) = open.get(resource) {
            return Some(known.clone());
        }
        let (storages, of) = (self.storages.clone(), resource.clone());
        let opened = tokio::task::spawn_blocking(move || storages.open(&of)).await.ok()?;
        open.insert(resource.clone(), opened.clone());
        Some(opened)
    }

    /// The storage of a resource that is open, without waiting. `None` also while one is being opened or
    /// closed.
    pub(crate) fn peek(&self, resource: &GroupResource) -> Option<Arc<dyn Storage>> {
        self.open.try_lock().ok()?.get(resource).cloned()
    }

    async fn close_one(&self, open: &mut HashMap<GroupResource, Arc<dyn Storage>>, resource: &GroupResource) {
        if !self.lock_removed().contains(resource) {
            return;
        }
        open.remove(resource);
        let (storages, of) = (self.storages.clone(), resource.clone());
        // Also if it is not in the map: the call that opened it may have been dropped. Fails only if the
        // process is ending.
        let _ = tokio::task::spawn_blocking(move || storages.close(&of)).await;
        self.lock_removed().remove(resource);
    }

    /// Notes that the definition of a resource was removed.
    pub(crate) fn remove(&self, resource: GroupResource) {
        self.lock_removed().insert(resource);
        self.notify.notify_one();
    }

    /// Closes the storages of removed definitions. Never returns.
    pub(crate) async fn close_removed(&self) {
        loop {
            let next = self.lock_removed().iter().next().cloned();
            match next {
                Some(resource) => {
                    let mut open = self.open.lock().await;
                    self.close_one(&mut open, &resource).await;
                }
                None => self.notify.notified().await,
            }
        }
    }
}
