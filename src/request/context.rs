//! What filters and handlers tell each other about a request and its answer.

use http::HeaderValue;
use std::borrow::Cow;
use std::collections::HashSet;
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
///
/// Headers have room for [`TOTAL`](Self::TOTAL) characters, beyond which each text is cut to [`CUT`](Self::CUT). Texts
/// that no header has room for are not kept: a client decides how many there are.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    texts: Vec<String>,
    said: HashSet<String>,
    /// Characters of all texts, each cut.
    cut: usize,
}

impl Warnings {
    /// All texts together may be that long (characters) before each is cut.
    pub const TOTAL: usize = 4096;
    /// A cut text.
    pub const CUT: usize = 256;

    /// Adds a text unless it was said before, or cannot stand in a header.
    pub fn add(&self, text: impl Into<String>) {
        let mut text = text.into();
        if text.is_empty() || text.chars().take(Self::TOTAL).any(char::is_control) {
            return;
        }
        let mut all = self.0.lock().expect("no code panics while holding this lock");
        if all.cut > Self::TOTAL {
            return;
        }
        // Longer than this, a text is cut, whatever else it says.
        if let Some((end, _)) = text.char_indices().nth(Self::TOTAL + 1) {
            text.truncate(end);
            text.shrink_to_fit();
        }
        if all.said.insert(text.clone()) {
            all.cut += text.chars().take(Self::CUT).count();
            all.texts.push(text);
        }
    }

    /// Takes what was said.
    pub fn take(&self) -> Vec<String> {
        let mut all = self.0.lock().expect("no code panics while holding this lock");
        std::mem::take(&mut *all).texts
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

/// Left on *responses* to unknown paths, which upstream does not count in `apiserver_request_total`.
#[derive(Clone, Copy, Debug)]
pub struct Uncounted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_recorded_once_and_no_more_than_headers_have_room_for() {
        let warnings = Warnings::default();
        for i in 0..100_000 {
            warnings.add(format!("{} {}", i / 2, "x".repeat(300)));
        }
        assert_eq!(warnings.take().len(), Warnings::TOTAL / Warnings::CUT + 1);
        warnings.add("x".repeat(1 << 20));
        warnings.add("");
        warnings.add("with\nnewline");
        let taken = warnings.take();
        assert_eq!(taken.iter().map(String::len).collect::<Vec<_>>(), [Warnings::TOTAL + 1]);
    }
}
