//! Lists, watches and deletes for controllers and subresources in the process of the store. They work on decoded
//! objects, and no selector applies; clients' requests use the other files of this module.

use super::store::Store;
use super::strategy::Context;
use super::write::DeleteOptions;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::storage::{Entry, EventType, ListOptions, MinRevision, Watch, WatchItem, WatchOptions};
use crate::tasks::{compute, off_thread};
use std::sync::Arc;

/// Seconds after which to repeat a list that was not completed.
const RETRY_AFTER: u32 = 1;

impl Store {
    /// Returns the latest state of all objects in `namespace`, or of all objects if it is empty, in the order of
    /// namespaces and names.
    ///
    /// # Errors
    /// 429 while the store is not ready, or if a request that calls this has no memory left for the objects.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list_values(&self, namespace: &str) -> Result<Vec<Value>> {
        let entries = self.list_entries(namespace).await?;
        let bytes: usize = entries.iter().map(|e| e.json.len()).sum();
        if !compute::is_heavy(bytes) {
            return Ok(entries.iter().map(|e| e.decode()).collect());
        }
        let memory = bytes.saturating_mul(compute::MEMORY_PER_STORED_BYTE);
        let decoded = off_thread(memory, move || entries.iter().map(|e| e.decode()).collect::<Vec<_>>());
        let interrupted = || Status::too_many_requests("the list was interrupted", RETRY_AFTER);
        decoded.await.ok_or_else(interrupted)
    }

    /// Follows the objects in `namespace`, or all objects if it is empty: first those that exist, then every
    /// change. A controller reconciles each object that it receives:
    ///
    /// ```no_run
    /// use torana::sdk::{Context, Store, StoreEvent};
    ///
    /// /// Says `Ready` in the status of every gadget.
    /// async fn control(gadgets: &Store) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut events = gadgets.watch_values("").await?;
    ///     while let Some(event) = events.next().await {
    ///         let StoreEvent::Applied(gadget) = event else { continue };
    ///         let cx = Context::system(gadget.str_at(&["metadata", "namespace"]));
    ///         let ready = |live: &torana::apimachinery::Value| {
    ///             let mut gadget = live.clone();
    ///             gadget.set(&["status", "phase"], "Ready");
    ///             Ok(gadget)
    ///         };
    ///         match gadgets.update_with(&cx, gadget.str_at(&["metadata", "name"]), "status", ready).await {
    ///             // Deleted in the meantime.
    ///             Err(status) if status.code == 404 => {}
    ///             result => drop(result?),
    ///         }
    ///     }
    ///     // The watch ended, such as because this task was too slow: call it again, after a pause.
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// 429 while the store is not ready.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn watch_values(&self, namespace: &str) -> Result<StoreWatch> {
        let options = WatchOptions {
            prefix: ListOptions::latest(namespace).prefix,
            initial: Some(MinRevision::Latest),
            // For the one that ends the initial state.
            bookmarks: true,
            ..WatchOptions::all()
        };
        let watch = self.watch(options).await?;
        Ok(StoreWatch { watch, item: None })
    }

    /// Deletes an object of the namespace of `cx`, with the propagation policy that the kind's rules name. Returns
    /// false if finalizers hold the object, which is then only marked as being deleted.
    ///
    /// # Errors
    /// 404, and the errors of admission, of the kind's `DeleteStrategy` and of storage.
    ///
    /// # Cancel safety
    /// Not cancel safe: the object may be deleted, but its side effects remain.
    pub async fn delete_value(&self, cx: &Context, name: &str) -> Result<bool> {
        let deleted = self.delete(cx, name, &DeleteOptions::default()).await?;
        Ok(deleted.gone)
    }

    /// As [`delete_value`](Self::delete_value), unless the object has changed since it was read. `object` is what
    /// was read; its namespace counts instead of that of `cx`.
    ///
    /// # Errors
    /// 409 if the object was changed or replaced, and those of [`delete_value`](Self::delete_value).
    ///
    /// # Cancel safety
    /// As [`delete_value`](Self::delete_value).
    pub async fn delete_unchanged(&self, cx: &Context, object: &Value) -> Result<bool> {
        let cx = Context {
            namespace: object.namespace().to_owned(),
            ..cx.clone()
        };
        let options = DeleteOptions {
            uid: Some(object.uid().to_owned()),
            resource_version: Some(object.resource_version().to_owned()),
            ..DeleteOptions::default()
        };
        Ok(self.delete(&cx, object.name(), &options).await?.gone)
    }
}

/// A change of an object of a [`Store`].
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// The object existed when the watch began, was created, or was changed.
    Applied(Value),
    /// The object was deleted; its last state.
    Deleted(Value),
    /// All objects that existed when the watch began have been sent. Occurs once.
    Synced,
}

/// The changes of a store's objects, from [`Store::watch_values`]. Dropping it ends the watch.
pub struct StoreWatch {
    watch: Box<dyn Watch>,
    /// The item that is being decoded.
    item: Option<WatchItem>,
}

impl StoreWatch {
    /// Waits for the next event. `None` once the watch has ended: its reader was too slow, the store shuts down, or
    /// a change could not be read. A reader that follows again receives every object that exists, but no event
    /// for what was deleted in between.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<StoreEvent> {
        loop {
            let item = match self.item.take() {
                Some(item) => item,
                None => self.watch.next().await?,
            };
            let (entry, deleted) = match &item {
                WatchItem::Initial(entry) => (entry.clone(), false),
                WatchItem::Change(kind, event) => (event.object(*kind), *kind == EventType::Deleted),
                WatchItem::Bookmark { initial_end: true, .. } => return Some(StoreEvent::Synced),
                WatchItem::Bookmark { .. } => continue,
                WatchItem::Failed(error) => {
                    tracing::warn!(%error, "a watch within the process ended");
                    // It is the last item, whoever asks again.
                    self.item = Some(item);
                    return None;
                }
            };
            // Kept until it is decoded, since this future may be dropped while it waits.
            self.item = Some(item);
            let object = decoded(entry).await;
            self.item = None;
            return object.map(match deleted {
                true => StoreEvent::Deleted,
                false => StoreEvent::Applied,
            });
        }
    }
}

/// Decodes an object off the reactor if it is large. `None` if the process is ending, or if a request has no memory
/// left for it.
async fn decoded(entry: Arc<Entry>) -> Option<Value> {
    let bytes = entry.json.len();
    if compute::is_heavy(bytes) {
        let memory = bytes.saturating_mul(compute::MEMORY_PER_STORED_BYTE);
        return off_thread(memory, move || entry.decode()).await;
    }
    // A reader of thousands of small objects would otherwise never return to the reactor.
    tokio::task::yield_now().await;
    Some(entry.decode())
}

#[cfg(test)]
mod tests;
