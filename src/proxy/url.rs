//! Canonical paths and queries, as a Go proxy sends them: decoded and encoded again like Go's `url.URL` and
//! `url.Values`. Entry point: [`canonical_path_and_query`].

use crate::request::percent;
use std::borrow::Cow;

/// The path with all escapes normalised: `%2F` becomes `/`, unnecessary escapes are decoded, double and
/// trailing slashes stay. `None` if an escape is malformed.
pub(crate) fn canonical_path(path: &str) -> Option<Cow<'_, str>> {
    // The common case: nothing is decoded or copied.
    if percent::is_encoded_path(path) {
        return Some(Cow::Borrowed(path));
    }
    let decoded = percent::decode(path)?;
    Some(Cow::Owned(percent::encode_path(&decoded).into_owned()))
}

/// The query parsed and encoded again: keys sorted, the order of values per key kept, spaces as `+`. Pairs
/// with malformed escapes or `;` are dropped, as Go does.
pub(crate) fn canonical_query(query: &str) -> String {
    let pairs = query
        .split('&')
        .filter(|p| !p.is_empty() && !p.contains(';'))
        .filter_map(|p| {
            let (k, v) = p.split_once('=').unwrap_or((p, ""));
            Some((percent::decode_query(k)?, percent::decode_query(v)?))
        });
    encoded(pairs.collect(), query.len())
}

/// Encodes pairs as a query: keys sorted, the order of values per key kept.
pub(crate) fn query_of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    encoded(pairs.into_iter().collect(), 0)
}

fn encoded<T: AsRef<[u8]>>(mut pairs: Vec<(T, T)>, capacity: usize) -> String {
    // Stable: the values of one key keep their order, as in Go's `url.Values.Encode`.
    pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
    let mut out = String::with_capacity(capacity);
    for (k, v) in &pairs {
        if !out.is_empty() {
            out.push('&');
        }
        percent::encode_query(k.as_ref(), &mut out);
        out.push('=');
        percent::encode_query(v.as_ref(), &mut out);
    }
    out
}

/// Percent-encodes a decoded path for the request line.
pub(crate) fn escaped_path(decoded: &str) -> String {
    percent::encode_path(decoded.as_bytes()).into_owned()
}

/// Path and query for the request line. A path that cannot be decoded is used as it is.
pub fn canonical_path_and_query(uri: &http::Uri) -> String {
    let path = canonical_path(uri.path()).unwrap_or(Cow::Borrowed(uri.path()));
    let mut out = String::with_capacity(path.len() + uri.query().map_or(0, |q| q.len() + 1));
    out.push_str(&path);
    if let Some(query) = uri.query() {
        let query = canonical_query(query);
        if !query.is_empty() {
            out.push('?');
            out.push_str(&query);
        }
    }
    out
}

/// The value of `X-Forwarded-Uri`: the path with `.`, `..` and double slashes resolved, keeping a trailing
/// slash.
pub fn cleaned_path(path: &str) -> Cow<'_, str> {
    // Fast path: there is nothing to clean unless a slash is followed by a slash or a dot.
    let suspicious = path
        .as_bytes()
        .windows(2)
        .any(|w| w[0] == b'/' && matches!(w[1], b'/' | b'.'));
    let needs_cleaning =
        !path.starts_with('/') || suspicious && (path.contains("//") || path.split('/').any(|s| s == "." || s == ".."));
    if !needs_cleaning {
        return Cow::Borrowed(path);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            // As Go's `path.Clean`: the parent of the root is the root.
            ".." => drop(parts.pop()),
            p => parts.push(p),
        }
    }
    let mut out = String::with_capacity(path.len());
    for p in &parts {
        out.push('/');
        out.push_str(p);
    }
    if path.ends_with('/') || out.is_empty() {
        out.push('/');
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_query_is_sorted_and_cleaned() {
        assert_eq!(
            canonical_query("b=2&a=1&a=0&c=x+y%20z&bad=%zz;k=v"),
            "a=1&a=0&b=2&c=x+y+z"
        );
        assert_eq!(
            canonical_query("limit=5&labelSelector=a%3Db"),
            "labelSelector=a%3Db&limit=5"
        );
        assert_eq!(canonical_query("watch&&x=%4"), "watch=");
    }

    #[test]
    fn a_path_is_encoded_again() {
        for (raw, canonical) in [
            ("/apis/g/v1/a%2Fb", "/apis/g/v1/a/b"),
            ("/a%41//b/", "/aA//b/"),
            ("/a%20(b)", "/a%20%28b%29"),
            ("/x;y=1,2:3@z", "/x;y=1,2:3@z"),
        ] {
            assert_eq!(canonical_path(raw).as_deref(), Some(canonical));
        }
        assert_eq!(canonical_path("/%zz"), None);
    }

    #[test]
    fn an_empty_query_leaves_no_question_mark() {
        for (raw, canonical) in [("/a?", "/a"), ("/a?;", "/a"), ("/a?b", "/a?b=")] {
            assert_eq!(canonical_path_and_query(&raw.parse().unwrap()), canonical);
        }
    }

    #[test]
    fn forwarded_paths_are_cleaned_and_keep_a_trailing_slash() {
        for (raw, clean) in [("/a//b/./c/../d/", "/a/b/d/"), ("/a", "/a"), ("/", "/"), ("/..", "/")] {
            assert_eq!(cleaned_path(raw), clean);
        }
    }

    proptest! {
        #[test]
        fn canonical_forms_are_fixed_points(path in "/[ -~]{0,30}", query in "[ -~]{0,40}") {
            let q = canonical_query(&query);
            prop_assert_eq!(canonical_query(&q), q);
            if let Some(p) = canonical_path(&path) {
                // A decoded `%` is encoded as `%25`, so a second pass yields the same path.
                prop_assert_eq!(canonical_path(&p), Some(Cow::Borrowed(&*p)).map(|c| Cow::Owned(c.into_owned())));
            }
        }
    }
}
