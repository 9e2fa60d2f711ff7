//! The finalizing controller of CustomResourceDefinitions (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go`): deletes the custom resources
//! of a definition that is being deleted, and removes its finalizer once none are left.
//!
//! ```text
//! deleted ─▶ Terminating=True InstanceDeletionInProgress
//!    ├─ never established, or a built-in resource ──────────────────┐
//!    └─ delete all instances, wait until they are gone ─┬─ gone ────┴─▶ Terminating=False, finalizer removed
//!                                                       └─ failed ───▶ Terminating=True with reason; retried
//! ```

use super::Definition;
use super::catalog::Catalog;
use super::worker::DefinitionWorker;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::registry::{Context, DeleteOptions, Store};
use crate::storage::ListOptions;
use crate::tasks::compute::ComputePool;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The finalizer of every definition that is being deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

const QUEUE: &str = "crd_finalizer";
/// Definitions finalized concurrently, as upstream: a worker waits for the finalizers of instances.
const WORKERS: usize = 5;
/// Longest wait of one attempt for the instances to disappear.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same while other definitions wait: instances with finalizers of five definitions may stay for ever, and would hold
/// up the deletion of all others.
const BRIEF_PATIENCE: Duration = Duration::from_secs(2);
/// First and longest delay between checks of the remaining instances.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_LAST: Duration = Duration::from_secs(5);
/// Built-in resources, which a definition may name but whose objects are not its own.
const BUILT_IN: [(&str, &str); 2] = [
    ("apiregistration.k8s.io", "apiservices"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
];

/// The finalizing controller. Clones share the queue.
#[derive(Clone)]
pub(super) struct Finalizing {
    worker: DefinitionWorker,
    definitions: Informer<Definition>,
    catalog: Arc<Catalog>,
}

/// A state of the condition `Terminating`.
struct Terminating {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Terminating {
    fn going_on(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: "True",
            reason,
            message: message.into(),
        }
    }

    fn done(reason: &'static str, message: &str) -> Self {
        Self {
            status: "False",
            reason,
            message: message.to_owned(),
        }
    }
}

impl Finalizing {
    pub(crate) fn new(
        store: Arc<Store>,
        definitions: Informer<Definition>,
        catalog: Arc<Catalog>,
        telemetry: &Telemetry,
    ) -> Self {
        Self {
            worker: DefinitionWorker::new(QUEUE, store, telemetry),
            definitions,
            catalog,
        }
    }

    /// Queues a definition that is being deleted.
    pub(crate) fn note(&self, change: &Change<'_, Definition>) {
        if let Some(new) = change.new.filter(|d| waits(d)) {
            // Only on the transition: our own updates of its condition come back here as well.
            if change.old.is_none_or(|old| !waits(old)) {
                self.worker.add(new);
            }
        }
    }

    /// Starts the workers in `tasks`; they end with the group.
    pub(crate) fn start(self, tasks: &TaskGroup, compute: &ComputePool, synced: &Signal) {
        // Several workers on one queue: each may wait a minute for finalizers of instances.
        for _ in 0..WORKERS {
            let (own, worker) = (self.clone(), self.worker.clone());
            let finalize = move |name: Str| {
                let own = own.clone();
                async move { own.finalize(&name).await }
            };
            worker.spawn(tasks, "finalizing definitions", compute, synced, finalize);
        }
    }

    async fn finalize(&self, name: &str) -> Result<()> {
        let live = match self.worker.store().get_value("", name).await {
            // Gone means done; the queue may hold names of definitions that were removed meanwhile.
            Err(e) if e.code == 404 => return Ok(()),
            other => other?,
        };
        if !live.is_being_deleted() || !live.finalizers().contains(&FINALIZER) {
            return Ok(());
        }
        let begun = Terminating::going_on("InstanceDeletionInProgress", "CustomResource deletion is in progress");
        // Written before deleting: creates must be refused first, or new instances could appear forever.
        let Some(live) = self.write(name, begun, false).await? else {
            return Ok(());
        };
        let resource = (
            live.str_at(&["spec", "group"]),
            live.str_at(&["spec", "names", "plural"]),
        );
        // The storage is shared with the built-in resource, whose objects must not be deleted.
        let end = if BUILT_IN.contains(&resource) {
            Terminating::done(
                "OverlappingBuiltInResource",
                "instances overlap with built-in resources in storage",
            )
        } else if !conditions::holds(&live, "Established") {
            // Never served, so there can be no instances, and no version to delete them through.
            Terminating::done("NeverEstablished", "resource was never established")
        } else if let Err((failed, e)) = self.delete_instances(resource).await {
            // The reason is visible to users while the queue retries.
            self.write(name, failed, false).await?;
            return Err(e);
        } else {
            Terminating::done("InstanceDeletionCompleted", "removed all instances")
        };
        self.write(name, end, true).await?;
        Ok(())
    }

    /// Writes the condition, and removes the finalizer at the end. `None` if the definition is gone.
    async fn write(&self, name: &str, to: Terminating, end: bool) -> Result<Option<Value>> {
        let now = time::now();
        let change = |live: &Value| {
            let mut v = live.clone();
            conditions::set(&mut v, "Terminating", to.status, to.reason, &to.message, &now);
            if end {
                let left: Vec<Value> = v
                    .finalizers()
                    .into_iter()
                    .filter(|f| *f != FINALIZER)
                    .map(Value::from)
                    .collect();
                // An absent list instead of an empty one, which Go's `omitempty` would not encode either.
                match left.is_empty() {
                    true => v.unset_meta("finalizers"),
                    false => v.set_meta("finalizers", left),
                }
            }
            Ok(v)
        };
        self.worker.update_status(name, change).await
    }

    async fn delete_instances(&self, (group, plural): (&str, &str)) -> std::result::Result<(), (Terminating, Status)> {
        let failed = |reason, what: &str| {
            let what = what.to_owned();
            move |e: Status| {
                (
                    Terminating::going_on(reason, format!("could not {what}: {}", e.message)),
                    e,
                )
            }
        };
        let not_listed = failed("InstanceDeletionFailed", "list instances");
        // Opening the storage may build the version, and so fail for a broken schema.
        let store = self.instances(group, plural).await.map_err(&not_listed)?;
        let all = store.list_entries("").await.map_err(not_listed)?;
        // `delete_collection` works within a namespace; a sorted set makes the order of deletion stable.
        let namespaces: BTreeSet<&str> = all.iter().map(|e| e.namespace()).collect();
        for namespace in namespaces {
            let all = ListOptions::latest(namespace);
            // The server deletes: no user, and no preconditions.
            let (cx, options) = (Context::system(namespace), DeleteOptions::default());
            let deleted = store.delete_collection(&cx, all, &options).await;
            deleted.map_err(failed("InstanceDeletionFailed", "issue all deletes"))?;
        }
        // Instances with finalizers stay until their controllers have removed these.
        let not_gone = failed("InstanceDeletionCheck", "confirm zero CustomResources remaining");
        let (since, mut delay) = (Instant::now(), LOOK_FIRST);
        loop {
            if store.list_entries("").await.map_err(&not_gone)?.is_empty() {
                return Ok(());
            }
            // Checked before sleeping, so that an attempt never exceeds its time by a whole delay.
            if since.elapsed() + delay >= patience(self.worker.others_wait()) {
                return Err(not_gone(Status::raw_error("context deadline exceeded")));
            }
            tokio::time::sleep(delay).await;
            // Doubles up to a limit: most instances are gone at once, others take minutes.
            delay = (delay * 2).min(LOOK_LAST);
        }
    }

    /// The store of the instances in the version in which they are stored, without admission: the server
    /// deletes them.
    async fn instances(&self, group: &str, plural: &str) -> Result<Store> {
        // Later than the status that was just written, so it is the definition that is being deleted.
        self.definitions.catch_up(&**self.worker.store().storage()).await;
        // Looked up only now: an older definition could have another storage version.
        let found = self.catalog.get(group, plural);
        let found = found.ok_or_else(|| Status::raw_error("the definition is gone"))?;
        let version = found.definition.storage_version();
        let version = version.ok_or_else(|| Status::raw_error("no version is stored"))?;
        let served = found.version(version, self.catalog.builder()).await;
        let served = served.map_err(|e| {
            Status::raw_error(format!(
                "unable to find a custom resource client for {plural}.{group}: {e}"
            ))
        })?;
        // Admission could refuse the deletion and block the definition forever.
        Ok(served.store().without_admission())
    }
}

/// How long an attempt waits for the instances to disappear.
fn patience(others_wait: bool) -> Duration {
    match others_wait {
        true => BRIEF_PATIENCE,
        false => PATIENCE,
    }
}

fn waits(definition: &Definition) -> bool {
    definition.deleting && definition.finalizers.iter().any(|f| f == FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{Backoff, WorkQueue};
    use futures_util::FutureExt as _;

    #[test]
    fn an_attempt_is_brief_while_another_definition_waits_for_a_worker() {
        let queue = WorkQueue::new(Backoff::CONTROLLER, Telemetry::new().queue("q"));
        let current = || patience(queue.has_ready());
        queue.add(Str::from("stuck"));
        assert_eq!(queue.next().now_or_never().flatten(), Some("stuck".into()));
        assert_eq!(current(), PATIENCE);
        queue.add(Str::from("other"));
        assert_eq!(current(), BRIEF_PATIENCE);
    }
}
