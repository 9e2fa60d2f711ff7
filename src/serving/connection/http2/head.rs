//! The head of an answer over HTTP/2.

use crate::request::Body;
use crate::request::headers::{self, remove_all};
use crate::serving::connection::activity::{Activity, signals};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Turns `Connection: close` into GOAWAY, as Go does, takes out what HTTP/2 does not know, and dates the answer.
pub(super) fn finish(headers: &mut HeaderMap, activity: &Activity, date: &mut Date) {
    let says_close = |v: &HeaderValue| v.as_bytes().eq_ignore_ascii_case(b"close");
    if headers.get_all(CONNECTION).iter().any(says_close) {
        activity.signal(signals::CLOSE);
    }
    remove_all(headers, |name| {
        matches!(
            name.as_str(),
            "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade"
        )
    });
    if !headers.contains_key(DATE)
        && let Some(now) = date.now()
    {
        headers.insert(DATE, now);
    }
}

/// Says how long a body is, where that is known and not said.
pub(super) fn announce_length(headers: &mut HeaderMap, body: &Body) {
    if let Some(length) = body.size_hint().exact() {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}

/// The time, written once a second.
#[derive(Debug, Default)]
pub(super) struct Date {
    /// Since 1970.
    second: u64,
    written: Option<HeaderValue>,
}

impl Date {
    fn now(&mut self) -> Option<HeaderValue> {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        if self.second != second {
            self.second = second;
            self.written = headers::date(now.into());
        }
        self.written.clone()
    }
}
