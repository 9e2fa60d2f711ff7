//! What filters and handlers tell each other about a request and its answer.

use http::HeaderValue;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// The id that ties log lines, audit events and backends' audit events together, as it stands in headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditId(HeaderValue);

impl AuditId {
    /// The header's value.
    pub fn header(&self) -> &HeaderValue {
        &self.0
    }

    /// As text; what is no text in it is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.0.as_bytes())
    }
}

impl From<HeaderValue> for AuditId {
    fn from(mut value: HeaderValue) -> Self {
        // New each time: HTTP/2's table of headers is for those that come again.
        value.set_sensitive(true);
        Self(value)
    }
}

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

/// Left on *responses* whose body is made only while the client reads: the transport asks for more when the client has
/// room for it, and holds nothing for a client that has none.
#[derive(Clone, Copy, Debug)]
pub struct WhenRead;

/// Left on *responses* to unknown paths, which upstream does not count in `apiserver_request_total`.
#[derive(Clone, Copy, Debug)]
pub struct Uncounted;
