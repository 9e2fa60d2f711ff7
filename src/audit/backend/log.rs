//! The log sink: writes events as lines to a file or to standard output.
//!
//! One thread owns the file, so no async worker blocks on disk I/O. Lines that queue up during a write are
//! coalesced into the next one.

use super::rotate::{RotatingFile, Rotation};
use super::{Sink, WriteOutcome};
use crate::audit::event::Event;
use crate::telemetry::audit::AuditMetrics;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

/// Line format (`--audit-log-format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The event as JSON.
    Json,
    /// Upstream's older `key="value"` format.
    Legacy,
}

/// Destination of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output, if the path is `-`.
    Stdout,
    /// A file with rotation.
    File(PathBuf, Rotation),
}

/// One write request to the thread, and the sender of its result.
struct Lines {
    bytes: Vec<u8>,
    events: usize,
    stored: oneshot::Sender<bool>,
}

/// Capacity of the thread's queue, in writes. When it is full, callers wait in their own tasks, so memory stays
/// bounded.
const QUEUE: usize = 1024;
/// Size in bytes from which no more queued lines are coalesced into a write.
const JOINED: usize = 1 << 20;

/// The log sink, a handle to the writer thread.
pub(crate) struct Log {
    format: Format,
    thread: mpsc::Sender<Lines>,
    metrics: AuditMetrics,
}

enum Out {
    Stdout,
    File(RotatingFile),
}

impl Out {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            Self::File(file) => file.write(lines),
        }
    }
}

impl Log {
    /// Opens the file and starts the thread, which ends when the sink is dropped.
    ///
    /// # Errors
    /// If the file cannot be opened or the thread cannot be started.
    pub(crate) fn open(target: &Target, format: Format, metrics: AuditMetrics) -> io::Result<Self> {
        let out = match target {
            Target::Stdout => Out::Stdout,
            Target::File(path, rotation) => Out::File(RotatingFile::open(path, *rotation)?),
        };
        let (thread, waiting) = mpsc::channel(QUEUE);
        let counted = metrics.clone();
        let name = std::thread::Builder::new().name("audit-log".to_owned());
        name.spawn(move || write_all(out, waiting, &counted))?;
        Ok(Self {
            format,
            thread,
            metrics,
        })
    }
}

fn write_all(mut out: Out, mut waiting: mpsc::Receiver<Lines>, metrics: &AuditMetrics) {
    while let Some(Lines {
        mut bytes,
        mut events,
        stored,
    }) = waiting.blocking_recv()
    {
        // One write for all lines that wait: with many requests in a blocking mode, a write per event would bound the
        // whole server by the latency of the disk.
        let mut tell = vec![stored];
        while bytes.len() < JOINED
            && let Ok(more) = waiting.try_recv()
        {
            bytes.extend_from_slice(&more.bytes);
            events += more.events;
            tell.push(more.stored);
        }
        let done = out.write(&bytes);
        if let Err(error) = &done {
            tracing::error!(events, "writing the audit log failed: {error}");
            metrics.failed("log", events);
        }
        for waiter in tell {
            // The receiver is gone if the client disconnected.
            let _ = waiter.send(done.is_ok());
        }
    }
}

impl Sink for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> WriteOutcome {
        // Encoded by the caller: the single writer thread must not become the bottleneck.
        let mut bytes = Vec::new();
        for event in &events {
            match self.format {
                Format::Json => bytes.extend(event.encode(true)),
                Format::Legacy => bytes.extend(event.legacy().into_bytes()),
            }
            bytes.push(b'\n');
        }
        let (tell, stored) = oneshot::channel();
        let lines = Lines {
            bytes,
            events: events.len(),
            stored: tell,
        };
        match self.thread.try_send(lines) {
            Ok(()) => WriteOutcome::Queued(stored),
            // The thread has ended, which it only does early if it panicked.
            Err(TrySendError::Closed(lines)) => {
                self.metrics.failed("log", lines.events);
                WriteOutcome::Work(Box::pin(std::future::ready(false)))
            }
            // The queue is full: the future waits for a slot, and no thread blocks.
            Err(TrySendError::Full(lines)) => WriteOutcome::Work(Box::pin(async move {
                match self.thread.send(lines).await {
                    Ok(()) => stored.await.unwrap_or(false),
                    Err(lost) => {
                        self.metrics.failed("log", lost.0.events);
                        false
                    }
                }
            })),
        }
    }
}
