//! Who saw what: a policy that decides what is recorded of each request, events in `audit.k8s.io/v1`, and the backends
//! they go to, as upstream's `k8s.io/apiserver/pkg/audit`.
//!
//! Entry point: [`Audit`], which the audit filter asks for a [`policy::Verdict`] and gives [`event::Event`]s. What
//! happens inside a request is left for it in [`crate::request::AuditTrail`]. Nothing here is part of the chain of a
//! server without a policy.
//!
//! ```text
//! filter ─ submit ─▶ truncate ─▶ blocking ─────────────────▶ sink: log thread, or one POST; the request waits
//!                             └▶ batch: bounded queue ─ worker ─▶ sink, so many events at a time; nobody waits
//! ```

pub mod answer;
pub mod backend;
pub mod event;
pub mod policy;

pub use backend::{Backend, Batching, Mode, Truncation};
pub use event::Event;
pub use policy::{Policy, Stage, Verdict};

use crate::request::{RequestInfo, UserInfo};
use crate::tasks::TaskGroup;
use crate::telemetry::audit::AuditMetrics;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What events are written in.
pub const API_VERSION: &str = "audit.k8s.io/v1";

/// A policy and where events go.
pub struct Audit {
    policy: Policy,
    backends: Vec<Backend>,
    metrics: AuditMetrics,
    tasks: TaskGroup,
}

/// Events that are being stored. Dropping it does not stop that.
#[must_use]
#[derive(Default)]
pub struct Pending(Vec<(bool, oneshot::Receiver<bool>)>);

impl Audit {
    /// Auditing by `policy` into `backends`, whose tasks are `tasks`.
    pub fn new(policy: Policy, backends: Vec<Backend>, metrics: AuditMetrics, tasks: TaskGroup) -> Self {
        Self {
            policy,
            backends,
            metrics,
            tasks,
        }
    }

    /// What is recorded of a request; counted.
    pub fn decide(&self, user: Option<&UserInfo>, info: &RequestInfo) -> Verdict {
        let verdict = self.policy.decide(user, info);
        self.metrics.at_level(verdict.level.name());
        verdict
    }

    /// Hands an event to every backend. What a backend does in its mode `blocking` can be waited for; `batch` is done at
    /// once, because an event that finds the buffer full is dropped and counted.
    pub fn submit(&self, event: Event) -> Pending {
        self.metrics.events.inc();
        let event = Arc::new(event);
        let waits = self.backends.iter().filter_map(|b| b.submit(&event, &self.tasks));
        Pending(waits.collect())
    }

    /// A request was refused because its event could not be stored.
    pub fn rejected(&self) {
        self.metrics.rejected.inc();
    }

    /// Stores what is buffered and ends. Retries that are not through by `deadline` are given up.
    ///
    /// # Cancel safety
    /// When dropped, what is buffered may be lost.
    pub async fn shut_down(&self, deadline: Instant) {
        if let Err(late) = self.tasks.shutdown(deadline).await {
            tracing::error!(tasks = ?late.0, "audit events were not stored in time");
        }
    }
}

impl Pending {
    /// Whether there is anything to wait for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits. False where a backend that must not fail did.
    ///
    /// # Cancel safety
    /// Cancel safe: storing goes on.
    pub async fn wait(self) -> bool {
        let mut good = true;
        for (strict, stored) in self.0 {
            let stored = stored.await.unwrap_or(false);
            good &= stored || !strict;
        }
        good
    }
}
