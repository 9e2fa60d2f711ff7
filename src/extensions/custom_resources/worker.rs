//! [`DefinitionWorker`]: the shared parts of the controllers of definitions: a queue of names, the tasks that
//! process it, and the update of a status. Each controller decides what to queue and what to write.

use super::Definition;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::{Str, Value};
use crate::registry::{Context, Store};
use crate::tasks::compute::ComputePool;
use crate::tasks::{Backoff, Signal, TaskGroup, WorkQueue};
use crate::telemetry::Telemetry;
use std::sync::Arc;

/// The queue of one controller. Clones share it.
#[derive(Clone)]
pub(super) struct DefinitionWorker {
    /// The name of the queue in metrics and logs.
    name: &'static str,
    /// The store of the definitions.
    store: Arc<Store>,
    queue: WorkQueue<Str>,
}

impl DefinitionWorker {
    pub(super) fn new(name: &'static str, store: Arc<Store>, telemetry: &Telemetry) -> Self {
        Self {
            name,
            store,
            queue: WorkQueue::new(Backoff::CONTROLLER, telemetry.queue(name)),
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn add(&self, definition: &Definition) {
        self.queue.add(definition.name.clone());
    }

    /// Whether another definition waits for a worker.
    pub(super) fn others_wait(&self) -> bool {
        self.queue.has_ready()
    }

    /// Starts a task in `tasks` that calls `reconcile` with each queued name, on the compute pool. It begins
    /// when `synced` fires, which says that all stored definitions have been read, and ends with the group.
    pub(super) fn spawn<F>(
        self,
        tasks: &TaskGroup,
        task: &'static str,
        compute: &ComputePool,
        synced: &Signal,
        reconcile: impl Fn(Str) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (compute, synced) = (compute.clone(), synced.clone());
        tasks.spawn_until_stopped(task, async move {
            // Before the first list, names would be reconciled against a store that seems empty.
            synced.wait().await;
            // On the compute pool, since a definition may have megabytes.
            let work = |name: Str| compute.run_own(reconcile(name));
            self.queue.process(self.name, work).await;
        });
    }

    /// Updates the status of a definition with the result of `change`; `None` if the definition is gone. Not
    /// cancel safe.
    ///
    /// # Errors
    /// Those of `change` and of the write.
    pub(super) async fn update_status(
        &self,
        name: &str,
        change: impl FnMut(&Value) -> Result<Value> + Send,
    ) -> Result<Option<Value>> {
        let cx = Context::system("");
        match self.store.update_with(&cx, name, "status", change).await {
            // The definition was removed meanwhile; there is nothing left to update.
            Err(e) if e.code == 404 => Ok(None),
            other => other.map(Some),
        }
    }
}
