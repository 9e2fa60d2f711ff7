//! The objects that token authenticators look up, read from the stores once those exist.

use crate::admission::ObjectLookup;
use crate::apimachinery::value::Value;
use crate::authn::CacheDependency;
use crate::authn::service_account::{ObjectReader, ResolvedObject};
use crate::controlplane::ControlPlane;
use crate::registry::strategy::Context;
use crate::storage::{Entry, Storage};
use async_trait::async_trait;
use std::sync::{Arc, OnceLock};

/// Reads through the cluster reader, and writes through the control plane once there is one.
pub struct TokenObjects {
    cluster: ObjectLookup,
    plane: OnceLock<Arc<ControlPlane>>,
}

impl TokenObjects {
    /// Nothing can be read before `cluster` is filled.
    pub fn new(cluster: ObjectLookup) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            plane: OnceLock::new(),
        })
    }

    /// Enables writes.
    pub fn fill(&self, plane: Arc<ControlPlane>) {
        // Set only once: a gateway has a single control plane.
        let _ = self.plane.set(plane);
    }
}

/// Holds while the entry is the object's latest version.
struct EntryUnchanged {
    storage: Arc<dyn Storage>,
    entry: Arc<Entry>,
}

impl CacheDependency for EntryUnchanged {
    fn is_unchanged(&self) -> bool {
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
    async fn get(&self, resource: &'static str, namespace: &str, name: &str) -> Result<Option<ResolvedObject>, String> {
        // Claims are signed but their content is arbitrary; a slash would address the key of another resource.
        if name.is_empty() || name.contains('/') || namespace.contains('/') {
            return Ok(None);
        }
        let found = self.cluster.entry("", resource, namespace, name).await;
        Ok(found.map_err(|e| e.message)?.map(|(entry, storage)| ResolvedObject {
            object: entry.decode(),
            dependency: Arc::new(EntryUnchanged {
                storage: storage.clone(),
                entry,
            }),
        }))
    }

    async fn label_secret(&self, namespace: &str, name: &str, label: &'static str, value: &str) {
        let Some(plane) = self.plane.get() else { return };
        let change = |live: &Value| {
            let mut new = live.clone();
            new.set(&["metadata", "labels", label], value);
            Ok(new)
        };
        let cx = Context::system(namespace);
        let changed = plane.store("", "secrets").update_with(&cx, name, "", change).await;
        if let Err(error) = changed {
            tracing::warn!(namespace, name, %error, "could not label the Secret of a used token");
        }
    }
}
