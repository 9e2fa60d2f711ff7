//! The objects that token authenticators look up. [`TokenObjects`] reads them directly from the stores, and
//! remembers their revisions so that cached results can be invalidated.

use crate::apimachinery::value::Value;
use crate::authn::CacheDependency;
use crate::authn::service_account::{ObjectReader, ResolvedObject, Unreadable};
use crate::registry::StoreLookup;
use crate::registry::strategy::Context;
use crate::storage::{Entry, MinRevision, Storage};
use crate::tasks::{compute, off_thread};
use async_trait::async_trait;
use std::sync::Arc;

/// The compute pool is full or stopped the work.
#[derive(Debug, thiserror::Error)]
#[error("too many requests, please try again later")]
struct NotDecoded;

/// Reads and writes through the stores.
pub(crate) struct TokenObjects(pub StoreLookup);

/// Holds while the entry is the object's latest version.
struct EntryUnchanged {
    storage: Arc<dyn Storage>,
    entry: Arc<Entry>,
}

impl CacheDependency for EntryUnchanged {
    fn is_unchanged(&self) -> bool {
        // A revision is never used twice, so equality proves that nothing was written in between.
        self.storage.peek_revision(&self.entry.key) == Some(self.entry.revision)
    }
}

impl std::fmt::Debug for EntryUnchanged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The entry is omitted because it may contain a token.
        f.debug_struct("Unchanged")
            .field("revision", &self.entry.revision)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ObjectReader for TokenObjects {
    async fn get(
        &self,
        resource: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ResolvedObject>, Unreadable> {
        // Claims are signed but their content is arbitrary; a slash would address the key of another
        // resource.
        if name.is_empty() || name.contains('/') || namespace.contains('/') {
            return Ok(None);
        }
        let store = self.0.get("", resource).map_err(|e| Unreadable(e.into()))?;
        let storage = store.storage().clone();
        let key = store.resource().key(namespace, name);
        // The latest state: a token is refused as soon as its object is gone.
        let found = storage.get(&key, MinRevision::Latest).await;
        let Some(entry) = found.map_err(|e| Unreadable(e.into()))? else {
            return Ok(None);
        };
        let object = if compute::is_heavy(entry.json.len()) {
            let entry = Arc::clone(&entry);
            let decoded = off_thread(entry.json.len() * compute::MEMORY_PER_STORED_BYTE, move || {
                entry.decode()
            })
            .await;
            decoded.ok_or_else(|| Unreadable(NotDecoded.into()))?
        } else {
            entry.decode()
        };
        Ok(Some(ResolvedObject {
            object,
            dependency: Arc::new(EntryUnchanged { storage, entry }),
        }))
    }

    async fn label_secret(&self, namespace: &str, name: &str, label: &'static str, value: &str) {
        let Ok(store) = self.0.get("", "secrets") else { return };
        let change = |live: &Value| {
            let mut new = live.clone();
            new.set(&["metadata", "labels", label], value);
            Ok(new)
        };
        let cx = Context::system(namespace);
        let changed = store.update_with(&cx, name, "", change).await;
        if let Err(error) = changed {
            tracing::warn!(namespace, name, %error, "could not label the Secret of a used token");
        }
    }
}
