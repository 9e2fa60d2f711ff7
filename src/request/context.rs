//! Facts of a request that filters leave for those inside, each its own type in the request's extensions.

use crate::tasks::Signal;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// When the request's head had been read.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedAt(pub Instant);

/// When a non-long-running request must have been answered. Absent: no limit.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// The id that ties log lines, audit events and backends' audit events together.
#[derive(Clone, Debug)]
pub struct AuditId(pub Arc<str>);

/// True where the request entered before every path was installed: unknown paths are then 503, not 404.
#[derive(Clone, Copy, Debug)]
pub struct PathsIncomplete(pub bool);

/// Texts for `Warning: 299` headers of the answer, each said once.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a text unless it was said before.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut all = self.0.lock().expect("no code panics while holding this lock");
        if !all.contains(&text) {
            all.push(text);
        }
    }

    /// Takes what was said.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no code panics while holding this lock"))
    }
}

/// Left on long-running requests: when it fires, the server is going down and streams should end at the next event border.
#[derive(Clone, Debug)]
pub struct Ending(pub Signal);

/// Left on *responses* that a backend gave. Upstream does not count them in `apiserver_request_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromBackend {
    /// An ordinary answer: the filters add their own headers in front of the backend's of the same name.
    Proxied,
    /// An upgrade's answer: only the backend's headers are sent.
    Verbatim,
}

impl FromBackend {
    /// Where an answer comes from; `None` for our own.
    pub fn of(response: &super::handler::Response) -> Option<Self> {
        response.extensions().get().copied()
    }
}

/// Left on *responses* to unknown paths, which upstream does not count in `apiserver_request_total`.
#[derive(Clone, Copy, Debug)]
pub struct Uncounted;
