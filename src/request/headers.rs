//! Header manipulation shared by filters and proxies: bulk removal, HTTP dates, and stripping of the identity
//! headers that only a trusted front proxy may set ([`IdentityHeaders`]).

use http::header::{HeaderName, TRAILER};
use http::{HeaderMap, HeaderValue};
use time::OffsetDateTime;

/// Maximum number of header fields in a message, in either direction. `http::HeaderMap` holds 24,576 distinct
/// names and panics on the next one. Filters and proxies add headers of their own, so the limit stays well
/// below that.
pub(crate) const MAX_HEADER_FIELDS: usize = 4096;

/// Names that are read from a list. A head can hold half a million of them, each of which costs a lookup or more.
const MAX_LISTED: usize = 128;

/// The names in the lines of a list such as `Connection` or `Trailer`; those beyond the first 128 are ignored.
// What cannot be a name is skipped: the line comes from a peer and must not fail the message.
pub(crate) fn listed(headers: &HeaderMap, list: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(list).iter();
    lines
        .flat_map(|line| line.as_bytes().split(|b| *b == b','))
        .take(MAX_LISTED)
        .filter_map(|name| std::str::from_utf8(name.trim_ascii()).ok())
        .filter(|name| !name.is_empty() && name.is_ascii())
}

/// Removes every header whose name satisfies `out`. Collects the names first because `HeaderMap` has no
/// `retain`; in the common case nothing matches and nothing is allocated.
pub(crate) fn remove_all(headers: &mut HeaderMap, mut out: impl FnMut(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| out(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Formats an HTTP date (IMF-fixdate, RFC 9110 section 5.6.7). `None` for years outside four digits.
pub(crate) fn date(moment: OffsetDateTime) -> Option<HeaderValue> {
    let format = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    HeaderValue::try_from(moment.format(format).ok()?).ok()
}

/// True if a backend that maps header names to environment-style variables (CGI, WSGI, Rack, PHP) would read
/// `name` as `header`. Those servers fold every non-alphanumeric character to `_`. Both arguments are
/// lower-case.
pub(crate) fn folds_to(name: &str, header: &str) -> bool {
    name.len() == header.len() && folds_to_prefix(name, header)
}

/// Prefix variant of [`folds_to`]. Stops at the first mismatch, so it costs no more than a plain prefix
/// comparison.
pub(crate) fn folds_to_prefix(name: &str, prefix: &str) -> bool {
    // Any two separators count as the same, whichever of them a backend folds.
    let same = |(n, p): (u8, u8)| n == p || !(n.is_ascii_alphanumeric() || p.is_ascii_alphanumeric());
    name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(same)
}

/// The headers by which a front proxy asserts the caller's identity. Values supplied by a client are never
/// forwarded.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityHeaders {
    /// Names that are claimed as a whole.
    pub names: Vec<HeaderName>,
    /// Prefixes, in lower case.
    pub prefixes: Vec<String>,
}

impl IdentityHeaders {
    /// Adds the `X-Remote-*` names that every Kubernetes API server trusts by default.
    #[must_use]
    pub(crate) fn with_standard(mut self) -> Self {
        for name in ["x-remote-user", "x-remote-uid", "x-remote-group"].map(HeaderName::from_static) {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
        let prefix = "x-remote-extra-".to_owned();
        if !self.prefixes.contains(&prefix) {
            self.prefixes.push(prefix);
        }
        self
    }

    /// True if a backend may take a header of this name for an identity header, or for an impersonation
    /// header spelled in a way that the impersonation filter does not recognise (such as `Impersonate_User`).
    pub(crate) fn claims(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        self.prefixes.iter().any(|p| folds_to_prefix(name, p))
            || self.names.iter().any(|n| folds_to(name, n.as_str()))
            // The exact spelling is left for the impersonation filter, which runs later and needs it.
            || (folds_to_prefix(name, IMPERSONATE) && !name.starts_with(IMPERSONATE))
    }

    /// Removes identity headers, and their names from the `Trailer` announcement.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        let mut announces = false;
        remove_all(headers, |name| {
            announces |= name == TRAILER;
            self.claims(name)
        });
        if announces {
            // A trailer is sent after the headers, so an announced identity header would arrive unchecked.
            retain_announced(headers, |name| {
                HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| !self.claims(&name))
            });
        }
    }
}

const IMPERSONATE: &str = "impersonate-";

/// Reduces the `Trailer` header to the announced names accepted by `keep` (which sees lower-case names), on
/// one line.
pub(crate) fn retain_announced(headers: &mut HeaderMap, keep: impl Fn(&str) -> bool) {
    let names: Vec<String> = listed(headers, TRAILER)
        .filter(|name| keep(&name.to_ascii_lowercase()))
        .map(str::to_owned)
        .collect();
    headers.remove(TRAILER);
    if names.is_empty() {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(names.join(", ")) {
        headers.insert(TRAILER, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(of: &IdentityHeaders, name: &str) -> bool {
        of.claims(&HeaderName::from_bytes(name.as_bytes()).unwrap())
    }

    #[test]
    fn header_names_that_fold_to_an_identity_header_are_recognised() {
        let of = IdentityHeaders {
            names: vec![HeaderName::from_static("x-my-user")],
            prefixes: vec!["x-my-extra-".to_owned()],
        }
        .with_standard();
        for name in [
            "X-Remote-User",
            "X_Remote_User",
            "x_remote-user",
            "x.remote.user",
            "X_REMOTE_GROUP",
            "x_remote_uid",
            "x_remote_extra_scopes",
            "X-Remote_Extra-a",
            "x_my_user",
            "x-my_extra_a",
            "Impersonate_User",
            "impersonate.extra-a",
        ] {
            assert!(claims(&of, name), "{name}");
        }
        // Canonical impersonation headers are consumed and removed by the impersonation filter.
        for name in [
            "Impersonate-User",
            "x-remote-users",
            "x-remote",
            "xremoteuser",
            "x_request_id",
            "user_agent",
        ] {
            assert!(!claims(&of, name), "{name}");
        }
    }

    #[test]
    fn identity_headers_are_removed_from_the_trailer_announcement() {
        let mut headers = HeaderMap::new();
        headers.append("x_remote_user", HeaderValue::from_static("root"));
        headers.append(TRAILER, HeaderValue::from_static("X-Sum, X_Remote_User"));
        headers.append(TRAILER, HeaderValue::from_static("x-remote-group"));
        IdentityHeaders::default().with_standard().strip(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[TRAILER], "X-Sum");
    }

    #[test]
    fn a_list_is_read_up_to_its_limit() {
        let mut headers = HeaderMap::new();
        headers.append(TRAILER, HeaderValue::from_bytes(b"a, \xff,,b").unwrap());
        assert_eq!(listed(&headers, TRAILER).collect::<Vec<_>>(), ["a", "b"]);
        headers.append(TRAILER, vec!["x"; 500_000].join(",").parse().unwrap());
        IdentityHeaders::default().with_standard().strip(&mut headers);
        let left = headers[TRAILER].to_str().unwrap().split(',').count();
        assert_eq!(left, MAX_LISTED - 2, "two were not names");
    }
}
