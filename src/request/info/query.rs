//! Decoding of paths and query strings with the semantics of Go's `net/url`.

use crate::request::percent;
use std::borrow::Cow;

/// The decoded pairs of a raw query in order, as Go's `url.ParseQuery` yields them: pairs with `;` or an
/// invalid escape are dropped, `+` is a space, and a key without `=` has an empty value.
pub(crate) fn pairs(raw: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw.split('&').filter_map(|pair| {
        // Go treats a semicolon as an error of this pair since 1.17, because proxies disagree on whether it
        // separates.
        if pair.is_empty() || pair.contains(';') {
            return None;
        }
        let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode_query_text(k)?, decode_query_text(v)?))
    })
}

/// The first value of a key; `None` if the key is absent.
pub(crate) fn first_value<'a>(raw: &'a str, key: &str) -> Option<Cow<'a, str>> {
    pairs(raw).find(|(k, _)| k == key).map(|(_, v)| v)
}

/// Percent-decodes a path; `None` for an invalid escape, which Go's HTTP server rejects with a bare 400.
pub(crate) fn decode_path(raw: &str) -> Option<Cow<'_, str>> {
    percent::decode(raw).map(text)
}

/// The segments between slashes, including empty ones at either end. Equivalent to `str::split('/')` but
/// faster on short paths, where the setup of its substring search dominates.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let path = rest?;
        match path.bytes().position(|b| b == b'/') {
            None => rest.take(),
            Some(at) => {
                rest = Some(&path[at + 1..]);
                Some(&path[..at])
            }
        }
    })
}

fn decode_query_text(raw: &str) -> Option<Cow<'_, str>> {
    percent::decode_query(raw).map(text)
}

/// Strings are bytes in Go; ours must be UTF-8, so invalid sequences are replaced.
fn text(decoded: Cow<'_, [u8]>) -> Cow<'_, str> {
    match decoded {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
            Ok(s) => s,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        }),
    }
}
