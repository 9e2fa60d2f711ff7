//! The naming controller of CustomResourceDefinitions (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go`). Start reading at
//! [`Naming::start`].
//!
//! Within a group, each plural, singular and short name, and each kind and list kind, belongs to one
//! definition. A requested name is accepted if it is free or already the definition's own; the condition
//! `NamesAccepted` shows whether all were. With the first acceptance `Established` gets the reason
//! `Installing`; serving the custom resources is not part of this controller.
//!
//! ```text
//! informer ──▶ queue ──▶ one worker ──▶ status ──▶ informer
//!    └─ a definition was deleted or its accepted names changed: requeue those of its group that lack names
//! ```

mod accept;

pub(crate) use accept::Names;

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::{Change, Informer};
use crate::extensions::custom_resources::Definition;
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::WriteOptions;
use crate::tasks::compute::ComputePool;
use crate::tasks::{Backoff, Signal, TaskGroup, WorkQueue};
use crate::telemetry::Telemetry;
use std::collections::HashMap;
use std::sync::Arc;

const MANAGER: &str = "kube-apiserver";

pub(crate) struct Naming {
    definitions: Informer<Definition>,
    store: Arc<Store>,
    queue: WorkQueue<Str>,
}

impl Naming {
    /// The controller for `definitions`, which are those in `store`.
    pub(crate) fn new(store: Arc<Store>, definitions: &Informer<Definition>, telemetry: &Telemetry) -> Arc<Self> {
        let queue = WorkQueue::new(Backoff::CONTROLLER, telemetry.queue("crd_naming_condition_controller"));
        let naming = Arc::new(Self {
            definitions: definitions.clone(),
            store,
            queue: queue.clone(),
        });
        // Subscribed before the informer's first list, so that no definition is missed.
        let of = definitions.clone();
        definitions.subscribe(move |change| note(&queue, &of, change));
        naming
    }

    /// Fires when all stored definitions have been read.
    pub(crate) fn synced(&self) -> &Signal {
        self.definitions.synced()
    }

    /// Starts the worker in `tasks`; it ends with the group. There is only one worker, so that conflicting
    /// definitions are decided one after the other; it computes on the pool, since a definition may have
    /// megabytes.
    pub(crate) fn start(self: Arc<Self>, tasks: &TaskGroup, compute: ComputePool) {
        let (queue, stop) = (self.queue.clone(), tasks.stop_signal().clone());
        tasks.spawn("naming conditions stop", async move {
            stop.wait().await;
            // The queue is shut down rather than dropped: an item in progress is finished.
            queue.shut_down();
        });
        tasks.spawn("naming conditions", async move {
            // A name may only be accepted once all other definitions are known.
            self.synced().wait().await;
            // Lives as long as the worker: only this task accepts names, so no lock is needed.
            let mut written = HashMap::new();
            while let Some(name) = self.queue.next().await {
                match self.sync(&name, &mut written, &compute).await {
                    Ok(()) => self.queue.forget(&name),
                    Err(e) => {
                        tracing::debug!(%name, error = %e, "naming a definition failed");
                        // Retried with backoff; a conflict with another writer is the usual reason.
                        self.queue.add_rate_limited(name.clone());
                    }
                }
                // After a retry was scheduled, so that the queue cannot hand out the name twice at once.
                self.queue.done(&name);
                // Many definitions that wait for one name are retried together, and most updates change
                // nothing.
                tokio::task::yield_now().await;
            }
        });
    }

    /// Updates the status of one definition. `written` holds updates that the informer has not delivered yet,
    /// so that a name is not accepted twice in the meantime.
    async fn sync(&self, name: &Str, written: &mut HashMap<Str, Definition>, compute: &ComputePool) -> Result<()> {
        let known = self.definitions.snapshot();
        // Dropped once the informer has caught up, or if the definition is gone.
        written.retain(|key, own| known.get(key.as_str()).is_some_and(|seen| seen.revision < own.revision));
        let Some(this) = known.get(name.as_str()) else {
            return Ok(());
        };
        // Our own write may be newer than the informer's state.
        let this = written.get(name).unwrap_or(this);
        // Nothing to accept; the controller is also triggered by its own updates.
        if this.requested == this.accepted {
            return Ok(());
        }
        let group = this.group.clone();
        // Own writes count as well, or two definitions could get one name within the informer's delay.
        let all = known.values().map(|d| written.get(&d.name).unwrap_or(d));
        let taken = accept::TakenNames::by(all.filter(|d| d.group == group).map(|d| &d.accepted));
        let update = accept(self.store.clone(), name.clone(), taken);
        match compute.run_own(update).await {
            Ok(updated) => {
                written.insert(name.clone(), updated);
                Ok(())
            }
            Err(e) if e.code == 404 => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Updates the status of a definition, and returns the new state.
async fn accept(store: Arc<Store>, name: Str, taken: accept::TakenNames) -> Result<Definition> {
    let now = time::now();
    let mut transform = |live: Option<&Value>| {
        // Built on each attempt: the closure runs again after a conflict.
        let gr = store.resource().group_resource();
        let mut v = live
            .ok_or_else(|| crate::apimachinery::Status::not_found(&gr, &name))?
            .clone();
        accept::accept_names(&mut v, &taken, &now);
        Ok(v)
    };
    let options = WriteOptions {
        manager: Some(MANAGER.to_owned()),
        subresource: "status".to_owned(),
        ..WriteOptions::default()
    };
    let updated = store
        .update(&Context::system(""), &name, &mut transform, false, &options)
        .await?;
    let v = updated.object.to_value();
    // An unparsable revision reads as old, so that the informer's state wins.
    let revision = v.resource_version().parse().unwrap_or(0);
    Ok(Definition::from_value(&v, revision))
}

fn note(queue: &WorkQueue<Str>, definitions: &Informer<Definition>, change: &Change<'_, Definition>) {
    // Also for deletions: `sync` finds nothing and returns.
    queue.add(change.key.into());
    // The old names may be free now, so retry the definitions that lack some.
    let Some(old) = change.old else { return };
    // Only a change of accepted names can free one.
    if change.new.is_some_and(|new| new.accepted == old.accepted) {
        return;
    }
    // The worker decides which of them can have the name now.
    for d in definitions.snapshot().values() {
        if d.group == old.group && d.requested != d.accepted {
            queue.add(d.name.clone());
        }
    }
}
