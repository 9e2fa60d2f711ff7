//! Conditions and ranges of a request for a document, as Go's `http.ServeContent` evaluates them (RFC 9110,
//! sections 13 and 14). Start at [`serve`], or with [`Validators::check`].

use crate::request::{Body, Response, headers};
use bytes::Bytes;
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS};
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::ops::Range;
use time::format_description::FormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// Go's message for a range that cannot be parsed.
const INVALID: &str = "invalid range";

const HTTP_DATE: &[FormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// The document that conditions refer to.
pub(super) struct Validators<'a> {
    /// The quoted ETag.
    pub etag: &'a str,
    /// When it was last modified, in seconds since 1970: dates have no fractions.
    pub modified: i64,
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let value = headers.get(name).and_then(|v| v.to_str().ok());
    value.filter(|v| !v.is_empty())
}

impl Validators<'_> {
    /// The status that ends the request: 304 if the client has the document, 412 if it wants another one.
    pub(super) fn check(&self, headers: &HeaderMap) -> Option<StatusCode> {
        let is_older = |name| text(headers, name).and_then(date).map(|then| self.modified <= then);
        let is_failed = match text(headers, IF_MATCH) {
            // Strong comparison: a weak tag (`W/`) never matches here, unlike in `If-None-Match`.
            Some(tags) => !tags.split(',').map(str::trim).any(|tag| tag == "*" || tag == self.etag),
            None => is_older(IF_UNMODIFIED_SINCE) == Some(false),
        };
        if is_failed {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let is_known = match text(headers, IF_NONE_MATCH) {
            Some(tags) => {
                let mut tags = tags.split(',').map(str::trim);
                tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.etag)
            }
            // Only considered without `If-None-Match`, which is more precise.
            None => is_older(IF_MODIFIED_SINCE) == Some(true),
        };
        is_known.then_some(StatusCode::NOT_MODIFIED)
    }

    /// The `Range` header, if it applies to the document that is there.
    pub(super) fn range<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        // A part of another version would not fit to what the client has.
        let applies = text(headers, IF_RANGE).is_none_or(|of| of == self.etag || date(of) == Some(self.modified));
        text(headers, RANGE).filter(|_| applies)
    }
}

/// The part of a document that a `Range` header requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The whole document (200).
    Whole,
    /// Some bytes (206).
    Part(Range<u64>),
    /// Bytes that the document does not have (416), with Go's reason.
    Unsatisfiable(&'static str),
}

impl Wanted {
    /// Parses the header for a document of `length` bytes. Several ranges count as none, which RFC 9110
    /// allows.
    pub(super) fn of(header: &str, length: u64) -> Self {
        let invalid = || Self::Unsatisfiable(INVALID);
        let Some(ranges) = header.strip_prefix("bytes=") else {
            return invalid();
        };
        let mut found = Vec::new();
        let mut is_beyond = false;
        for range in ranges.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            let Some((start, end)) = range.split_once('-') else {
                return invalid();
            };
            let (start, end) = (start.trim(), end.trim());
            let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
                true => text.parse::<u64>().ok(),
                false => None,
            };
            match (start, end) {
                ("", last) => match number(last) {
                    Some(last) => found.push(length.saturating_sub(last)..length),
                    None => return invalid(),
                },
                (start, end) => {
                    let Some(start) = number(start) else { return invalid() };
                    if start >= length {
                        is_beyond = true;
                        continue;
                    }
                    match (end, number(end)) {
                        ("", _) => found.push(start..length),
                        // The end is inclusive in the header and exclusive in a Rust range; beyond the document it is
                        // cut.
                        (_, Some(end)) if end >= start => found.push(start..length.min(end.saturating_add(1))),
                        _ => return invalid(),
                    }
                }
            }
        }
        match found.as_slice() {
            [] if is_beyond && length > 0 => Self::Unsatisfiable("invalid range: failed to overlap"),
            [one] => Self::Part(one.clone()),
            // Several ranges would need a multipart body; RFC 9110 allows ignoring them.
            _ => Self::Whole,
        }
    }
}

/// Seconds since 1970.
fn date(text: &str) -> Option<i64> {
    let date = PrimitiveDateTime::parse(text, HTTP_DATE).ok()?;
    Some(date.assume_utc().unix_timestamp())
}

/// Responds with a document that is in memory, or a part of it, or with the status that the request's conditions
/// lead to.
pub(crate) fn serve(
    body: Vec<u8>,
    content_type: &'static str,
    modified: OffsetDateTime,
    wants: &HeaderMap,
) -> Response {
    // Without an ETag, only `*` matches.
    let validators = Validators {
        etag: "",
        modified: modified.unix_timestamp(),
    };
    let length = body.len() as u64;
    let mut response = match validators.check(wants) {
        Some(status) => bare(status),
        None => match validators
            .range(wants)
            .map_or(Wanted::Whole, |range| Wanted::of(range, length))
        {
            Wanted::Unsatisfiable(why) => return unsatisfiable(why, length),
            Wanted::Part(part) => {
                let range = content_range(&part, length);
                let part = part.start as usize..part.end as usize;
                let mut response = Response::new(Body::full(Bytes::from(body).slice(part)));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                set(&mut response, CONTENT_RANGE, &range);
                response
            }
            Wanted::Whole => Response::new(Body::full(body)),
        },
    };
    // Go finds out the type when it reads the document, which it does not do once a condition has failed.
    if response.status().is_success() {
        set(&mut response, ACCEPT_RANGES, "bytes");
        set(&mut response, CONTENT_TYPE, content_type);
    }
    if let Some(date) = headers::date(modified) {
        response.headers_mut().insert(LAST_MODIFIED, date);
    }
    response
}

/// The value of `Content-Range`.
pub(super) fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1))
}

/// 416 in the words of Go's file server.
pub(super) fn unsatisfiable(why: &str, length: u64) -> Response {
    let mut response = Response::new(Body::full(format!("{why}\n")));
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    // Go sends the length only if the range was understood.
    if why != INVALID {
        set(&mut response, CONTENT_RANGE, &format!("bytes */{length}"));
    }
    response
}

/// Sets a header to a value known to be valid; otherwise does nothing.
pub(super) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(v) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, v);
    }
}

/// An empty response with the given status code.
pub(super) fn bare(code: StatusCode) -> Response {
    let mut r = Response::new(Body::empty());
    *r.status_mut() = code;
    r
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    fn document() -> Validators<'static> {
        let modified = OffsetDateTime::from_unix_timestamp(784_111_777).unwrap();
        assert_eq!(headers::date(modified).unwrap(), DATE);
        Validators {
            etag: "\"E\"",
            modified: modified.unix_timestamp(),
        }
    }

    #[test]
    fn conditions_match_go() {
        let before = "Sun, 06 Nov 1994 08:49:36 GMT";
        for (pairs, status) in [
            (&[][..], 0),
            (&[("if-none-match", "\"x\", W/\"E\"")], 304),
            (&[("if-none-match", "*")], 304),
            (&[("if-none-match", "\"x\"")], 0),
            (&[("if-modified-since", DATE)], 304),
            (&[("if-modified-since", before)], 0),
            (&[("if-modified-since", "yesterday")], 0),
            (&[("if-none-match", "\"x\""), ("if-modified-since", DATE)], 0),
            (&[("if-match", "\"x\"")], 412),
            (&[("if-match", "W/\"E\"")], 412),
            (&[("if-match", "\"x\", \"E\"")], 0),
            (&[("if-unmodified-since", before)], 412),
            (&[("if-unmodified-since", DATE)], 0),
        ] {
            let found = document().check(&headers(pairs)).map_or(0, |status| status.as_u16());
            assert_eq!(found, status, "{pairs:?}");
        }
    }

    #[test]
    fn ranges_match_go() {
        let invalid = || Wanted::Unsatisfiable("invalid range");
        for (range, result) in [
            ("bytes=0-3", Wanted::Part(0..4)),
            ("bytes=4-", Wanted::Part(4..10)),
            ("bytes=4-99", Wanted::Part(4..10)),
            ("bytes=-3", Wanted::Part(7..10)),
            ("bytes=-99", Wanted::Part(0..10)),
            ("bytes=0-1,20-", Wanted::Part(0..2)),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=20-", Wanted::Unsatisfiable("invalid range: failed to overlap")),
            ("bytes=5-4", invalid()),
            ("bytes=--4", invalid()),
            ("bytes=x-", invalid()),
            ("bytes=5", invalid()),
            ("lines=1-2", invalid()),
        ] {
            assert_eq!(Wanted::of(range, 10), result, "{range}");
        }
    }

    #[test]
    fn only_documents_that_are_sent_have_a_type() {
        let modified = OffsetDateTime::from_unix_timestamp(784_111_777).unwrap();
        for (pairs, status, is_typed) in [
            (&[][..], 200, true),
            (&[("range", "bytes=0-0")], 206, true),
            (&[("if-match", "\"x\"")], 412, false),
            (&[("if-modified-since", DATE)], 304, false),
        ] {
            let response = serve(b"{}".to_vec(), "text/plain; charset=utf-8", modified, &headers(pairs));
            let typed = response.headers().contains_key(CONTENT_TYPE);
            assert_eq!((response.status().as_u16(), typed), (status, is_typed), "{pairs:?}");
            assert_eq!(response.headers()[LAST_MODIFIED], DATE);
        }
    }

    #[test]
    fn a_range_of_another_document_is_ignored() {
        for (of, applies) in [("\"x\"", false), ("\"E\"", true), (DATE, true)] {
            let headers = headers(&[("range", "bytes=0-3"), ("if-range", of)]);
            assert_eq!(document().range(&headers).is_some(), applies, "{of}");
        }
    }
}
