//! Audit logging: a policy that decides what is recorded of each request, events in `audit.k8s.io/v1`, and
//! the backends that store them. Follows upstream's `k8s.io/apiserver/pkg/audit`.
//!
//! Entry point: [`Audit`]. The audit filter asks it for a [`policy::Verdict`] and submits [`event::Event`]s
//! to it. Handlers add to a request's event through [`crate::request::AuditTrail`]. A server without a policy
//! has no audit filter at all.
//! ```text
//! filter ─ submit ─▶ truncate ─▶ blocking ─────────────────▶ sink: log thread or POST; the request waits
//!                             └▶ batch: bounded queue ─ worker ─▶ sink, in batches; requests do not wait
//! ```

pub(crate) mod backend;
pub(crate) mod event;
pub(crate) mod policy;
pub(crate) mod response;

pub(crate) use backend::{Backend, Batching, Mode, Truncation};
pub(crate) use event::Event;
pub use policy::Policy;
pub(crate) use policy::{Stage, Verdict};

use crate::request::{RequestInfo, UserInfo};
use crate::tasks::TaskGroup;
use crate::telemetry::audit::AuditMetrics;
use response::ResponseLimits;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// API version of recorded events.
pub(crate) const API_VERSION: &str = "audit.k8s.io/v1";

/// The audit policy and its backends.
pub(crate) struct Audit {
    policy: Policy,
    backends: Vec<Backend>,
    metrics: AuditMetrics,
    tasks: TaskGroup,
    response_limits: ResponseLimits,
}

/// Completion of an event in the blocking backends. Dropping it does not cancel the writes.
#[must_use]
#[derive(Default)]
pub(crate) struct PendingWrites(Vec<(bool, oneshot::Receiver<bool>)>);

impl Audit {
    /// Records by `policy` into `backends`, whose background tasks belong to `tasks`.
    pub(crate) fn new(policy: Policy, backends: Vec<Backend>, metrics: AuditMetrics, tasks: TaskGroup) -> Self {
        Self {
            policy,
            backends,
            metrics,
            tasks,
            response_limits: ResponseLimits::default(),
        }
    }

    /// The limits on recorded response objects.
    pub(crate) fn response_limits(&self) -> &ResponseLimits {
        &self.response_limits
    }

    /// Submits an event later, from a task.
    pub(crate) fn defer(&self, submit: impl Future<Output = ()> + Send + 'static) {
        // At shutdown the group takes no more tasks, and the event is lost.
        if !self.tasks.spawn("audit event", submit) {
            self.metrics.failed("deferred", 1);
        }
    }

    /// The policy's decision for a request, counted by level in the metrics.
    pub(crate) fn decide(&self, user: Option<&UserInfo>, info: &RequestInfo) -> Verdict {
        // Counted even at level None, as upstream does: the metric tells how much the policy leaves out.
        let verdict = self.policy.decide(user, info);
        self.metrics.at_level(verdict.level.name());
        verdict
    }

    /// Hands an event to every backend. Backends in a blocking mode can be awaited through the result.
    /// Batching backends never make the caller wait: if the queue is full, the event is dropped and counted.
    pub(crate) fn submit(&self, event: Event) -> PendingWrites {
        self.metrics.events.inc();
        // Shared by all backends, whose queues may hold it for as long as the sink retries.
        let event = Arc::new(event);
        let waits = self.backends.iter().filter_map(|b| b.submit(&event, &self.tasks));
        PendingWrites(waits.collect())
    }

    /// Counts a request that was rejected because its event could not be stored (mode `blocking-strict`).
    pub(crate) fn rejected(&self) {
        self.metrics.rejected.inc();
    }

    /// Flushes queued events and stops the backends. Retries still under way at `deadline` are abandoned.
    ///
    /// # Cancel safety
    /// Not cancel safe: queued events may be lost.
    pub(crate) async fn shut_down(&self, deadline: Instant) {
        if let Err(late) = self.tasks.shutdown(deadline).await {
            tracing::error!(tasks = ?late.0, "audit events were not stored before the shutdown deadline");
        }
    }
}

impl PendingWrites {
    /// True if no backend makes the request wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all writes have ended. False if a backend in mode `blocking-strict` failed.
    ///
    /// # Cancel safety
    /// Cancel safe: the writes continue.
    pub(crate) async fn wait(self) -> bool {
        let mut good = true;
        // One after the other is enough: the writes run concurrently in their own tasks.
        for (strict, stored) in self.0 {
            // A sender that was dropped without a result means that the write was lost.
            let stored = stored.await.unwrap_or(false);
            good &= stored || !strict;
        }
        good
    }
}
