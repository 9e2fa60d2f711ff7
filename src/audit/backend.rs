//! Audit backends. A [`Backend`] combines a [`Sink`] (log file or webhook) with a delivery mode and a limit
//! on event size.

mod batch;
pub(crate) mod log;
pub(crate) mod rotate;
#[cfg(test)]
mod tests;
pub(crate) mod webhook;

use super::event::Event;
use crate::request::AuditLevel;
use crate::tasks::TaskGroup;
use crate::telemetry::audit::AuditMetrics;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Delivery mode of a backend (`--audit-log-mode`, `--audit-webhook-mode`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Requests do not wait. Events are dropped if the queue is full, and lose their objects when those of all queued
    /// events are too large.
    Batch(Batching),
    /// Requests wait until their events are stored or have failed.
    Blocking,
    /// Like `Blocking`, and a request is rejected if its `RequestReceived` event cannot be stored.
    BlockingStrict,
}

/// Parameters of batch mode.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batching {
    /// Capacity of the queue, in events.
    pub buffer: usize,
    /// Maximum number of events in a batch.
    pub max_size: usize,
    /// How long a batch waits for more events before it is written; zero: not at all.
    pub max_wait: Duration,
    /// Batches per second and burst; `None`: unthrottled.
    pub throttle: Option<(f64, usize)>,
}

/// Limits on the size of events, in bytes of their JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncation {
    /// A larger event is stored without its objects, or dropped if it is still too large.
    pub max_event: usize,
    /// Maximum size of one batch.
    pub max_batch: usize,
}

/// Outcome of handing events to a sink. Either way, `true` means stored.
pub(crate) enum WriteOutcome {
    /// The sink is processing the write; the receiver resolves with its result.
    Queued(oneshot::Receiver<bool>),
    /// The write happens when the caller drives this future.
    Work(Pin<Box<dyn Future<Output = bool> + Send>>),
}

/// Stores events. A sink logs and counts its own failures, so callers only need the result.
pub(crate) trait Sink: Send + Sync + 'static {
    /// The plugin name used in metrics and logs.
    fn name(&self) -> &'static str;
    /// Starts to store the events.
    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> WriteOutcome;
}

/// A sink with its delivery mode.
pub(crate) struct Backend {
    sink: Arc<dyn Sink>,
    mode: Mode,
    queue: Option<batch::Queue>,
    truncation: Option<Truncation>,
    metrics: AuditMetrics,
}

impl Backend {
    /// Starts a backend. In batch mode, its worker is spawned in `tasks`.
    pub(crate) fn start(
        sink: Arc<dyn Sink>,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: AuditMetrics,
        tasks: &TaskGroup,
    ) -> Self {
        let queue = match &mode {
            Mode::Batch(how) => {
                let (queue, waiting) = batch::Queue::new(how.buffer);
                let worker = batch::Worker {
                    sink: sink.clone(),
                    how: how.clone(),
                    max_bytes: truncation.map(|t| t.max_batch),
                    waiting,
                    stop: tasks.stop_signal().clone(),
                };
                tasks.spawn(format!("audit {} batches", sink.name()), worker.run());
                Some(queue)
            }
            Mode::Blocking | Mode::BlockingStrict => None,
        };
        Self {
            sink,
            mode,
            queue,
            truncation,
            metrics,
        }
    }

    /// Applies the size limit (upstream's `plugin/pkg/audit/truncate`): the event, reduced if necessary;
    /// `None` if it is dropped.
    fn fit(&self, event: &Arc<Event>) -> Option<Arc<Event>> {
        let Some(limit) = self.truncation else {
            return Some(event.clone());
        };
        // Encoded only to be measured: truncation is off by default, and sinks differ in their format.
        if event.encode(true).len() <= limit.max_event {
            return Some(event.clone());
        }
        // Below this level there are no objects to remove.
        if event.level >= AuditLevel::Request {
            let less = event.truncated();
            if less.encode(true).len() <= limit.max_event {
                return Some(Arc::new(less));
            }
        }
        tracing::error!(
            audit_id = %event.subject.audit_id,
            max = limit.max_event,
            "audit event dropped: too large even without its objects"
        );
        self.metrics.failed("truncate", 1);
        None
    }

    /// Starts to store an event. In the blocking modes, returns whether a failure rejects the request, and
    /// the receiver of the result.
    pub(super) fn submit(&self, event: &Arc<Event>, tasks: &TaskGroup) -> Option<(bool, oneshot::Receiver<bool>)> {
        let event = self.fit(event)?;
        if let Some(queue) = &self.queue {
            // Never waits: a slow sink must not slow down requests in this mode.
            if !queue.add(event) {
                tracing::error!(backend = self.sink.name(), "audit event dropped: the buffer is full");
                self.metrics.failed("buffered", 1);
            }
            return None;
        }
        let stored = match self.sink.clone().write(vec![event]) {
            WriteOutcome::Queued(stored) => stored,
            WriteOutcome::Work(work) => {
                let (tell, stored) = oneshot::channel();
                // In a task of its own: the write must also happen if the client disconnects.
                let started = tasks.spawn("audit event", async move {
                    // The receiver is gone if the client disconnected.
                    let _ = tell.send(work.await);
                });
                if !started {
                    self.metrics.failed(self.sink.name(), 1);
                }
                stored
            }
        };
        Some((self.mode == Mode::BlockingStrict, stored))
    }
}
