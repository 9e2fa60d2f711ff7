//! Paths and query strings, read as Go's `net/url` reads them.

use std::borrow::Cow;

/// The pairs of a raw query, in order, as Go's `url.Values` has them: pairs with `;` or a bad escape are dropped,
/// `+` is a space, a key without `=` has an empty value.
pub fn pairs(raw: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw.split('&').filter_map(|pair| {
        if pair.is_empty() || pair.contains(';') {
            return None;
        }
        let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescape(k, true)?, unescape(v, true)?))
    })
}

/// The first value of a key; `None` where the key is absent.
pub fn first_value<'a>(raw: &'a str, key: &str) -> Option<Cow<'a, str>> {
    pairs(raw).find(|(k, _)| k == key).map(|(_, v)| v)
}

/// A path with its escapes undone; `None` for a bad escape, which Go's HTTP server answers with a bare 400.
pub fn decode_path(raw: &str) -> Option<Cow<'_, str>> {
    unescape(raw, false)
}

/// What is between the slashes of a path, the ends included: `split`, without its search that is made for long texts.
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

fn unescape(s: &str, plus_is_space: bool) -> Option<Cow<'_, str>> {
    let has = |byte| s.as_bytes().contains(&byte);
    if !(has(b'%') || plus_is_space && has(b'+')) {
        return Some(Cow::Borrowed(s));
    }
    let mut out = Vec::with_capacity(s.len());
    let mut bytes = s.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => out.push(hex(bytes.next()?)? << 4 | hex(bytes.next()?)?),
            b'+' if plus_is_space => out.push(b' '),
            b => out.push(b),
        }
    }
    Some(Cow::Owned(match String::from_utf8(out) {
        Ok(s) => s,
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    }))
}

fn hex(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).map(|d| d as u8)
}
