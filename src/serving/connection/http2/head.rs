//! Response heads over HTTP/2: `finish` turns `Connection: close` into GOAWAY, removes what HTTP/2 forbids and adds
//! `Date`; `announce_length` adds `Content-Length`.

use crate::request::Body;
use crate::request::headers::{self, remove_all};
use crate::serving::activity::{Activity, signals};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Translates `Connection: close` into GOAWAY, as Go does; removes hop-by-hop headers, which HTTP/2 forbids;
/// adds `Date`.
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

/// Adds `Content-Length` if the body's length is known.
pub(super) fn announce_length(headers: &mut HeaderMap, body: &Body) {
    if let Some(length) = body.size_hint().exact() {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}

/// The formatted `Date` value, refreshed once a second.
#[derive(Debug, Default)]
pub(super) struct Date {
    /// Seconds since the Unix epoch.
    second: u64,
    written: Option<HeaderValue>,
}

impl Date {
    fn now(&mut self) -> Option<HeaderValue> {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        // Compared for inequality: the clock may be set back.
        if self.second != second {
            self.second = second;
            self.written = headers::date(now.into());
        }
        self.written.clone()
    }
}
