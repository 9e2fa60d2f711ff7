//! [`Handle`]: the [`Storage`] of one resource. Reads go to its cacher, writes to the committer.

use super::committer::Action;
use super::{ResourceStore, Shared};
use crate::storage::{
    Budget, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Storage, Watch,
    WatchOptions,
};
use crate::telemetry::{Operation, StorageMetrics, spans};
use async_trait::async_trait;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;
use tracing::Instrument as _;

/// The largest object, in bytes of JSON: etcd's default request limit, so that a store can be moved to etcd,
/// with the error etcd returns.
const MAX_OBJECT_BYTES: usize = 3 << 19;

/// The store of a resource as the registry uses it.
pub(super) struct Handle {
    pub resource: Arc<ResourceStore>,
    pub shared: Arc<Shared>,
    pub metrics: Arc<StorageMetrics>,
}

// === impl Handle ===

impl Handle {
    async fn write(&self, key: &str, what: Operation, action: Action) -> Result<Arc<Entry>, Error> {
        // Waiting for a permit counts as well, because the caller waits for it.
        let since = Instant::now();
        let span = spans::storage("sqlite", what, &self.resource.prefix);
        let outcome = self.shared.write(&self.resource, key, action).instrument(span).await;
        // A conflict is an answer and not a failure of the store.
        let failed = matches!(outcome, Err(Error::Failed(_) | Error::NotReady(_)));
        self.metrics.operation_done(what, since.elapsed(), failed);
        outcome
    }
}

#[async_trait]
impl Storage for Handle {
    async fn get(&self, key: &str, min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        self.resource.check()?;
        self.resource.cacher.get(key, min).await
    }

    async fn list(&self, options: ListOptions) -> Result<Listing, Error> {
        self.resource.check()?;
        // Lists expire with the compacted revision although the ring may still have the state; watches are
        // bounded by the ring.
        self.shared.compaction.check(&options)?;
        self.resource.cacher.list(options).await
    }

    async fn watch(&self, options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        self.resource.check()?;
        self.resource.cacher.watch(options).await
    }

    async fn put(
        &self,
        key: &str,
        when: Precondition,
        mut draft: Draft,
        ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        // Checked before encryption, which adds a few bytes, so that the limit does not depend on the
        // configuration.
        if draft.json.len() > MAX_OBJECT_BYTES {
            return Err(Error::TooLarge("etcdserver: request is too large".to_owned()));
        }
        let stored = self.resource.seal(key, draft.json.clone());
        let stored = stored.map_err(|e| Error::Unwritable(Arc::new(e)))?;
        // Here and not by the committer, for which all writers wait.
        if self.resource.compressed {
            draft.compress();
        }
        let what = match when {
            Precondition::Absent => Operation::Create,
            Precondition::Unchanged(_) => Operation::Update,
        };
        let action = Action::Put {
            when,
            draft,
            stored,
            ttl: ttl_seconds,
        };
        self.write(key, what, action).await
    }

    async fn delete(&self, key: &str, unchanged: Revision) -> Result<Arc<Entry>, Error> {
        self.write(key, Operation::Delete, Action::Delete { unchanged }).await
    }

    fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    fn last_change(&self) -> Revision {
        self.resource.cacher.last_change()
    }

    fn last_change_in(&self, namespace: &str, since: Revision) -> Option<Revision> {
        self.resource.cacher.last_change_in(namespace, since)
    }

    fn peek_revision(&self, key: &str) -> Option<Revision> {
        self.resource.check().ok()?;
        Some(self.resource.cacher.peek(key)?.revision)
    }

    fn count(&self) -> usize {
        self.resource.cacher.count()
    }

    fn peek_size(&self, key: &str) -> usize {
        self.resource.cacher.peek(key).map_or(0, |e| e.json.len())
    }

    fn resident_bytes(&self) -> u64 {
        self.resource.cacher.snapshot().bytes() as u64
    }

    fn encoded_bytes(&self) -> Option<u64> {
        let state = self.resource.cacher.snapshot();
        // Measured without decompressing: entries may be held compressed.
        Some(state.scan("", Bound::Unbounded).map(|e| e.json.len() as u64).sum())
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        Some(&self.shared.budget)
    }
}
