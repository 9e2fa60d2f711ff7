//! The establishing controller of CustomResourceDefinitions (upstream's
//! `k8s.io/apiextensions-apiserver/pkg/controller/establish/establishing_controller.go`): a definition whose
//! names are accepted gets the condition `Established`. Upstream waits five seconds where several API servers
//! run; requests here wait until their gateway has seen the definition instead.

use super::Definition;
use super::worker::DefinitionWorker;
use crate::apimachinery::conditions;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::registry::Store;
use crate::tasks::compute::ComputePool;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use std::sync::Arc;

const QUEUE: &str = "crdEstablishing";

/// The establishing controller. Clones share the queue.
#[derive(Clone)]
pub(super) struct Establishing(DefinitionWorker);

impl Establishing {
    pub(super) fn new(store: Arc<Store>, telemetry: &Telemetry) -> Self {
        Self(DefinitionWorker::new(QUEUE, store, telemetry))
    }

    /// Queues a definition that can be established.
    pub(super) fn note(&self, change: &Change<'_, Definition>) {
        // Both conditions are written by controllers, so each update comes back here once.
        let ready = |d: &&Arc<Definition>| d.conditions.names_accepted && !d.conditions.established && !d.deleting;
        if let Some(new) = change.new.filter(ready) {
            self.0.add(new);
        }
    }

    /// Starts the worker in `tasks`; it ends with the group.
    pub(super) fn start(self, tasks: &TaskGroup, compute: &ComputePool, synced: &Signal) {
        let worker = self.0.clone();
        let establish = move |name: Str| {
            let own = self.clone();
            async move { own.establish(&name).await }
        };
        worker.spawn(tasks, "establishing definitions", compute, synced, establish);
    }

    async fn establish(&self, name: &str) -> Result<()> {
        let now = time::now();
        // Decided on the live object: the names may have been rejected since the definition was queued.
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
        self.0.update_status(name, change).await?;
        Ok(())
    }
}
