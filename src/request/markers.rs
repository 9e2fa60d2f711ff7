//! Small values exchanged between filters and handlers: the audit id, warnings, and markers left on
//! responses.

use http::HeaderValue;
use std::any::Any;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::sync::Mutex;

/// The audit id in header form. It correlates log lines, audit events and the audit events of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditId(HeaderValue);

impl AuditId {
    /// The value of the `Audit-ID` header.
    pub fn header(&self) -> &HeaderValue {
        &self.0
    }

    /// The id as a string; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.0.as_bytes())
    }
}

impl From<HeaderValue> for AuditId {
    fn from(mut value: HeaderValue) -> Self {
        // Every id is new: marking it sensitive keeps it out of HPACK's dynamic table, where it would evict
        // useful entries.
        value.set_sensitive(true);
        Self(value)
    }
}

/// Something to hold while a watch initializes, such as its seats. The last clone releases it.
#[derive(Clone)]
pub struct Initializing {
    _guard: Arc<dyn Any + Send + Sync>,
}

impl Initializing {
    /// Holds `guard`.
    pub fn holding(guard: impl Any + Send + Sync) -> Self {
        Self {
            _guard: Arc::new(guard),
        }
    }
}

/// Warnings for the response's `Warning: 299` headers, deduplicated.
///
/// Once all warnings together exceed [`TOTAL`](Self::TOTAL) characters, each is truncated to [`CUT`](Self::CUT).
/// Warnings that would not fit even then are not stored, because a client controls how many there are.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Option<Box<Recorded>>>>);

/// Allocated with the first warning: few requests have any.
#[derive(Debug, Default)]
struct Recorded {
    texts: Vec<String>,
    said: HashSet<String>,
    /// Characters of all warnings after truncation of each.
    cut: usize,
}

impl Warnings {
    /// Total characters up to which warnings are sent in full.
    pub const TOTAL: usize = 4096;
    /// Characters that are left of a truncated warning.
    pub const CUT: usize = 256;

    /// Adds a warning, unless it is a duplicate, empty, or contains control characters (which a header cannot
    /// contain).
    pub fn add(&self, text: impl Into<String>) {
        let mut text = text.into();
        if text.is_empty() || text.chars().take(Self::TOTAL).any(char::is_control) {
            return;
        }
        let mut all = self.0.lock();
        let all = all.get_or_insert_default();
        // Checked before the warning is copied into the set: handlers may add thousands of warnings for one body.
        if all.cut > Self::TOTAL {
            return;
        }
        // One character past the total is enough to make the writer truncate; the rest only takes memory.
        if let Some((end, _)) = text.char_indices().nth(Self::TOTAL + 1) {
            text.truncate(end);
            text.shrink_to_fit();
        }
        // A set besides the list: a linear search for duplicates would be quadratic in a body with many warnings.
        if all.said.insert(text.clone()) {
            all.cut += text.chars().take(Self::CUT).count();
            all.texts.push(text);
        }
    }

    /// Takes the collected warnings.
    pub fn take(&self) -> Vec<String> {
        self.0.lock().take().map_or_else(Vec::new, |all| all.texts)
    }
}

/// Marker on responses that came from a backend. Upstream does not count them in `apiserver_request_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromBackend {
    /// A proxied response: headers set by our filters precede the backend's headers of the same name.
    Proxied,
    /// A response to an upgrade: only the backend's headers are sent.
    Verbatim,
}

impl FromBackend {
    /// The response's marker; `None` for responses produced by this server.
    pub(crate) fn of(response: &super::handler::Response) -> Option<Self> {
        response.extensions().get().copied()
    }
}

/// Marker on responses whose body is generated on demand: the transport polls for the next frame only when
/// the client has room for it, and buffers nothing for a slow client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDemandBody;

/// Marker on responses to unknown paths, which upstream does not count in `apiserver_request_total`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotInRequestMetrics;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_deduplicated_and_bounded() {
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
