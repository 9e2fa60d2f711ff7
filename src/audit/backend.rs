//! Where events go: a sink (log, webhook), how it is fed (mode), and how large events may be.

mod batch;
pub mod log;
pub mod rotate;
#[cfg(test)]
mod tests;
pub mod webhook;

use super::event::Event;
use crate::request::AuditLevel;
use crate::tasks::TaskGroup;
use crate::telemetry::audit::AuditMetrics;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How a backend is fed.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Nobody waits; events that find the buffer full are dropped.
    Batch(Batching),
    /// Requests wait until their events are stored, or storing them has failed.
    Blocking,
    /// And a request whose arrival cannot be stored is refused.
    BlockingStrict,
}

/// How events are gathered.
#[derive(Clone, Debug, PartialEq)]
pub struct Batching {
    /// Most events that wait.
    pub buffer: usize,
    /// Most events of one write.
    pub max_size: usize,
    /// Longest time a write waits for more events; zero: not at all.
    pub max_wait: Duration,
    /// Writes per second, and how many may come at once.
    pub throttle: Option<(f64, usize)>,
}

/// How large events may be, in bytes of their JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// An event larger than this loses its objects; one that is still larger is dropped.
    pub max_event: usize,
    /// Most bytes of one write.
    pub max_batch: usize,
}

/// What becomes of a write that was handed over.
pub enum Write {
    /// It is on its way; the receiver says how it ended.
    Queued(oneshot::Receiver<bool>),
    /// It is to be run.
    Work(Pin<Box<dyn Future<Output = bool> + Send>>),
}

/// Stores events. A sink logs and counts its own failures.
pub trait Sink: Send + Sync + 'static {
    /// Its name in metrics.
    fn name(&self) -> &'static str;
    /// Begins to store them.
    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> Write;
}

/// A sink with its mode.
pub struct Backend {
    sink: Arc<dyn Sink>,
    mode: Mode,
    queue: Option<mpsc::Sender<Arc<Event>>>,
    truncation: Option<Truncation>,
    metrics: AuditMetrics,
}

impl Backend {
    /// Feeds `sink`. The worker of a batching backend is one of `tasks`.
    pub fn start(
        sink: Arc<dyn Sink>,
        mode: Mode,
        truncation: Option<Truncation>,
        metrics: AuditMetrics,
        tasks: &TaskGroup,
    ) -> Self {
        let queue = match &mode {
            Mode::Batch(how) => {
                let (queue, waiting) = mpsc::channel(how.buffer.max(1));
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

    /// The event as it may be stored here.
    fn fit(&self, event: &Arc<Event>) -> Option<Arc<Event>> {
        let Some(limit) = self.truncation else {
            return Some(event.clone());
        };
        if event.encode(true).len() <= limit.max_event {
            return Some(event.clone());
        }
        if event.level >= AuditLevel::Request {
            let less = event.truncated();
            if less.encode(true).len() <= limit.max_event {
                return Some(Arc::new(less));
            }
        }
        tracing::error!(
            audit_id = %event.subject.audit_id,
            max = limit.max_event,
            "an audit event is too large even without its objects and is dropped"
        );
        self.metrics.failed("truncate", 1);
        None
    }

    /// Begins to store an event: whether failing matters, and what says how it ended, where requests wait for it.
    pub(super) fn submit(&self, event: &Arc<Event>, tasks: &TaskGroup) -> Option<(bool, oneshot::Receiver<bool>)> {
        let event = self.fit(event)?;
        if let Some(queue) = &self.queue {
            if queue.try_send(event).is_err() {
                tracing::error!(
                    backend = self.sink.name(),
                    "the audit buffer is full; an event is dropped"
                );
                self.metrics.failed("buffered", 1);
            }
            return None;
        }
        let stored = match self.sink.clone().write(vec![event]) {
            Write::Queued(stored) => stored,
            Write::Work(work) => {
                let (tell, stored) = oneshot::channel();
                let started = tasks.spawn("audit event", async move {
                    // Nobody may be waiting any more.
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
