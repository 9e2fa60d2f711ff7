//! Decoding of paths and query strings with the semantics of Go's `net/url`.

use std::borrow::Cow;

/// The decoded pairs of a raw query in order, as Go's `url.ParseQuery` yields them: pairs with `;` or an invalid escape
/// are dropped, `+` is a space, and a key without `=` has an empty value.
pub fn pairs(raw: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw.split('&').filter_map(|pair| {
        if pair.is_empty() || pair.contains(';') {
            return None;
        }
        let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescape(k, true)?, unescape(v, true)?))
    })
}

/// The first value of a key; `None` if the key is absent.
pub fn first_value<'a>(raw: &'a str, key: &str) -> Option<Cow<'a, str>> {
    pairs(raw).find(|(k, _)| k == key).map(|(_, v)| v)
}

/// Percent-decodes a path; `None` for an invalid escape, which Go's HTTP server rejects with a bare 400.
pub fn decode_path(raw: &str) -> Option<Cow<'_, str>> {
    unescape(raw, false)
}

/// The segments between slashes, including empty ones at either end. Equivalent to `str::split('/')` but faster on
/// short paths, where the setup of its substring search dominates.
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
        // Strings are bytes in Go; ours must be UTF-8, so invalid sequences are replaced.
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    }))
}

fn hex(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).map(|d| d as u8)
}
