//! The controllers of the conditions that follow from a definition's content: `NonStructuralSchema` and
//! `KubernetesAPIApprovalPolicyConformant` (upstream: `pkg/controller/nonstructuralschema` and
//! `pkg/controller/apiapproval` of `k8s.io/apiextensions-apiserver`).
//!
//! New definitions cannot have the former: validation refuses them. Those that were stored by servers without
//! the rules got it from later ones, so only definitions that have the condition are looked at. That saves
//! checking every schema at every start.

use super::Definition;
use super::worker::DefinitionWorker;
use crate::apimachinery::conditions;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::extensions::definitions::conditions::{Condition, api_approval, non_structural_schema};
use crate::registry::Store;
use crate::tasks::compute::ComputePool;
use crate::tasks::{Signal, TaskGroup, off_thread};
use crate::telemetry::Telemetry;
use std::sync::Arc;

const APPROVAL: &str = "KubernetesAPIApprovalPolicyConformant";
const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// Both controllers. Clones share the queue.
#[derive(Clone)]
pub(super) struct Conformance(DefinitionWorker);

const QUEUE: &str = "kubernetes_api_approval_conformant_condition_controller";

impl Conformance {
    pub(super) fn new(store: Arc<Store>, telemetry: &Telemetry) -> Self {
        Self(DefinitionWorker::new(QUEUE, store, telemetry))
    }

    /// Queues a definition that has, or should have, one of the conditions.
    pub(super) fn note(&self, change: &Change<'_, Definition>) {
        // Only these can need a change; checking the others would compile every schema at every start.
        if let Some(new) = change.new.filter(|d| d.protected || d.conditions.non_structural) {
            self.0.add(new);
        }
    }

    /// Starts the worker in `tasks`; it ends with the group.
    pub(super) fn start(self, tasks: &TaskGroup, compute: &ComputePool, synced: &Signal) {
        let worker = self.0.clone();
        let sync = move |name: Str| {
            let own = self.clone();
            async move { own.sync(&name).await }
        };
        worker.spawn(tasks, "conformance of definitions", compute, synced, sync);
    }

    async fn sync(&self, name: &str) -> Result<()> {
        // Read from the store instead of the informer: the decision is about the latest state.
        let live = match self.0.store().get_value("", name).await {
            Err(e) if e.code == 404 => return Ok(()),
            other => other?,
        };
        let approval = api_approval(&live);
        // The condition is not added here, only kept up to date or removed.
        let structural = match conditions::find(&live, NON_STRUCTURAL) {
            None => None,
            Some(_) => {
                let of = live.clone();
                // Checking a schema of megabytes takes long, and must not block the reactor.
                let found = off_thread(0, move || non_structural_schema(&of)).await;
                // The process is ending.
                let Some(found) = found else { return Ok(()) };
                found
            }
        };
        // No write if nothing changes, or every sync would wake all watchers of definitions.
        if shows(&live, APPROVAL, approval.as_ref()) && shows(&live, NON_STRUCTURAL, structural.as_ref()) {
            return Ok(());
        }
        let now = time::now();
        // Recomputed on the latest state by `update_status`, which retries on conflicts.
        let change = |live: &Value| {
            let mut v = live.clone();
            for (kind, wanted) in [(APPROVAL, &approval), (NON_STRUCTURAL, &structural)] {
                match wanted {
                    Some(c) => conditions::set(&mut v, kind, c.status, c.reason, &c.message, &now),
                    None => conditions::remove(&mut v, kind),
                }
            }
            Ok(v)
        };
        self.0.update_status(name, change).await?;
        Ok(())
    }
}

/// True if the definition has exactly this condition, or lacks it if `wanted` is `None`.
fn shows(definition: &Value, kind: &str, wanted: Option<&Condition>) -> bool {
    match (conditions::find(definition, kind), wanted) {
        (None, None) => true,
        (Some(has), Some(wanted)) => {
            has.str_at(&["status"]) == wanted.status
                && has.str_at(&["reason"]) == wanted.reason
                && has.str_at(&["message"]) == wanted.message
        }
        _ => false,
    }
}
