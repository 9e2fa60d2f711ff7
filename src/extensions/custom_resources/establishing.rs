//! The establishing controller of CustomResourceDefinitions (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/controller/establish/establishing_controller.go`): a definition whose
//! names are accepted gets the condition `Established`. Upstream waits five seconds where several API servers
//! run; requests here wait until their gateway has seen the definition instead.

use super::Definition;
use crate::apimachinery::conditions;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::registry::{Context, Store};
use crate::tasks::compute::ComputePool;
use crate::tasks::{Backoff, TaskGroup, WorkQueue};
use crate::telemetry::Telemetry;
use std::sync::Arc;

const QUEUE: &str = "crdEstablishing";

/// The establishing controller. Clones share the queue.
#[derive(Clone)]
pub(super) struct Establishing {
    store: Arc<Store>,
    queue: WorkQueue<Str>,
}

impl Establishing {
    pub(crate) fn new(store: Arc<Store>, telemetry: &Telemetry) -> Self {
        Self {
            store,
            queue: WorkQueue::new(Backoff::CONTROLLER, telemetry.queue(QUEUE)),
        }
    }

    /// Queues a definition that can be established.
    pub(crate) fn note(&self, change: &Change<'_, Definition>) {
        let ready = |d: &&Arc<Definition>| d.conditions.names_accepted && !d.conditions.established && !d.deleting;
        if let Some(new) = change.new.filter(ready) {
            self.queue.add(new.name.clone());
        }
    }

    /// Starts the worker in `tasks`; it ends with the group.
    pub(crate) fn start(self, tasks: &TaskGroup, compute: ComputePool) {
        tasks.spawn_until_stopped("establishing definitions", async move {
            let work = |name: Str| {
                let own = self.clone();
                compute.run_own(async move { own.establish(&name).await })
            };
            self.queue.process(QUEUE, work).await;
        });
    }

    async fn establish(&self, name: &str) -> Result<()> {
        let now = time::now();
        let change = |live: &Value| {
            let mut v = live.clone();
            if conditions::holds(&v, "NamesAccepted") && !conditions::holds(&v, "Established") {
                conditions::set(
                    &mut v,
                    "Established",
                    "True",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                    &now,
                );
            }
            Ok(v)
        };
        match self
            .store
            .update_with(&Context::system(""), name, "status", change)
            .await
        {
            Err(e) if e.code != 404 => Err(e),
            _ => Ok(()),
        }
    }
}
