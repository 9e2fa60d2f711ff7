//! The controllers of the conditions that follow from a definition's content: `NonStructuralSchema` and
//! `KubernetesAPIApprovalPolicyConformant` (upstream: `pkg/controller/nonstructuralschema` and
//! `pkg/controller/apiapproval` of `k8s.io/apiextensions-apiserver`).
//!
//! New definitions cannot have the former: validation refuses them. Those that were stored by servers without
//! the rules got it from later ones, so only definitions that have the condition are looked at. That saves
//! checking every schema at every start.

use super::Definition;
use crate::apimachinery::conditions;
use crate::apimachinery::status::Result;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::extensions::definitions::conditions::{Condition, api_approval, non_structural_schema};
use crate::registry::{Context, Store};
use crate::tasks::compute::ComputePool;
use crate::tasks::{Backoff, TaskGroup, WorkQueue, off_thread};
use crate::telemetry::Telemetry;
use std::sync::Arc;

const APPROVAL: &str = "KubernetesAPIApprovalPolicyConformant";
const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// Both controllers. Clones share the queue.
#[derive(Clone)]
pub(super) struct Conformance {
    store: Arc<Store>,
    queue: WorkQueue<Str>,
}

const QUEUE: &str = "kubernetes_api_approval_conformant_condition_controller";

impl Conformance {
    pub(crate) fn new(store: Arc<Store>, telemetry: &Telemetry) -> Self {
        Self {
            store,
            queue: WorkQueue::new(Backoff::CONTROLLER, telemetry.queue(QUEUE)),
        }
    }

    /// Queues a definition that has, or should have, one of the conditions.
    pub(crate) fn note(&self, change: &Change<'_, Definition>) {
        if let Some(new) = change.new.filter(|d| d.protected || d.conditions.non_structural) {
            self.queue.add(new.name.clone());
        }
    }

    /// Starts the worker in `tasks`; it ends with the group.
    pub(crate) fn start(self, tasks: &TaskGroup, compute: ComputePool) {
        tasks.spawn_until_stopped("conformance of definitions", async move {
            let work = |name: Str| {
                let own = self.clone();
                compute.run_own(async move { own.sync(&name).await })
            };
            self.queue.process(QUEUE, work).await;
        });
    }

    async fn sync(&self, name: &str) -> Result<()> {
        let live = match self.store.get_value("", name).await {
            Err(e) if e.code == 404 => return Ok(()),
            other => other?,
        };
        let approval = api_approval(&live);
        let structural = match conditions::find(&live, NON_STRUCTURAL) {
            None => None,
            Some(_) => {
                let of = live.clone();
                let found = off_thread(0, move || non_structural_schema(&of)).await;
                // The process is ending.
                let Some(found) = found else { return Ok(()) };
                found
            }
        };
        if shows(&live, APPROVAL, approval.as_ref()) && shows(&live, NON_STRUCTURAL, structural.as_ref()) {
            return Ok(());
        }
        let now = time::now();
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

/// Whether the definition has exactly this condition, or none.
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
