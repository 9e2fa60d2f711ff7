//! Events as lines of a file, or of standard output.
//!
//! One thread owns the file, so that no request's thread waits for a disk; what is queued while it writes goes out in one
//! write.

use super::rotate::{RotatingFile, Rotation};
use super::{Sink, Write};
use crate::audit::event::Event;
use crate::telemetry::audit::AuditMetrics;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The event as JSON.
    Json,
    /// Upstream's older `key="value"` line.
    Legacy,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file that is rotated.
    File(PathBuf, Rotation),
}

/// Lines of one write, and who waits for it.
struct Lines {
    bytes: Vec<u8>,
    events: usize,
    stored: oneshot::Sender<bool>,
}

/// Most writes that wait for the thread; beyond, those who write wait in tasks of their own.
const QUEUE: usize = 1024;
/// Bytes after which no more of what is queued is joined to a write.
const JOINED: usize = 1 << 20;

/// The sink.
pub struct Log {
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
    /// The file cannot be opened, or the thread not be started.
    pub fn open(target: &Target, format: Format, metrics: AuditMetrics) -> io::Result<Self> {
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
            // Nobody may be waiting any more.
            let _ = waiter.send(done.is_ok());
        }
    }
}

impl Sink for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn write(self: Arc<Self>, events: Vec<Arc<Event>>) -> Write {
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
            Ok(()) => Write::Queued(stored),
            Err(TrySendError::Closed(lines)) => {
                self.metrics.failed("log", lines.events);
                Write::Work(Box::pin(std::future::ready(false)))
            }
            Err(TrySendError::Full(lines)) => Write::Work(Box::pin(async move {
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
