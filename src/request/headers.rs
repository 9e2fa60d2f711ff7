//! What filters and proxies do to the headers of a request or answer.

use http::header::{HeaderName, TRAILER};
use http::{HeaderMap, HeaderValue};
use time::OffsetDateTime;

/// Most header fields of a message, either way. A map takes 24,576 different names and panics at one more; filters and proxies
/// add some, so a message must stay well below.
pub const MOST_FIELDS: usize = 4096;

/// Removes the headers whose names are `out`. One look at each name, where mostly nothing is to be removed.
pub fn remove_all(headers: &mut HeaderMap, mut out: impl FnMut(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| out(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// A moment as headers write it (RFC 9110, 5.6.7), in the years that this form can write.
pub fn date(moment: OffsetDateTime) -> Option<HeaderValue> {
    let format = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    HeaderValue::try_from(moment.format(format).ok()?).ok()
}

/// True where a server that turns header names into variables, as CGI, WSGI, Rack and PHP do, reads `name` as it reads
/// `header`: every character that is neither a letter nor a digit becomes the same `_` there. Both are lower-case.
pub fn reads_as(name: &str, header: &str) -> bool {
    name.len() == header.len() && begins_as(name, header)
}

/// As [`reads_as`], of the beginning of `name`. Ends at the first letter that differs, as a plain comparison does.
pub fn begins_as(name: &str, prefix: &str) -> bool {
    let same = |(n, p): (u8, u8)| n == p || !(n.is_ascii_alphanumeric() || p.is_ascii_alphanumeric());
    name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(same)
}

/// Headers by which a front proxy names the caller; what a client says in them never travels on.
#[derive(Clone, Debug, Default)]
pub struct IdentityHeaders {
    /// Whole names.
    pub names: Vec<HeaderName>,
    /// Prefixes, lower-case.
    pub prefixes: Vec<String>,
}

impl IdentityHeaders {
    /// With the names that every server of Kubernetes knows.
    #[must_use]
    pub fn with_standard(mut self) -> Self {
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

    /// True where a server may take a header of this name for one that names the caller, or for one that asks to be
    /// somebody else and that no filter here knows as such.
    pub fn claims(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        self.prefixes.iter().any(|p| begins_as(name, p))
            || self.names.iter().any(|n| reads_as(name, n.as_str()))
            || (begins_as(name, IMPERSONATE) && !name.starts_with(IMPERSONATE))
    }

    /// Removes such headers, and such names from the trailers that are announced.
    pub fn strip(&self, headers: &mut HeaderMap) {
        let mut announces = false;
        remove_all(headers, |name| {
            announces |= name == TRAILER;
            self.claims(name)
        });
        if announces {
            retain_announced(headers, |name| {
                HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| !self.claims(&name))
            });
        }
    }
}

const IMPERSONATE: &str = "impersonate-";

/// Keeps of the trailers that `Trailer` announces those whose lower-case names `keep` takes, in one header line.
pub fn retain_announced(headers: &mut HeaderMap, keep: impl Fn(&str) -> bool) {
    let names: Vec<String> = headers
        .get_all(TRAILER)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty() && keep(&name.to_ascii_lowercase()))
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
    fn every_spelling_that_a_server_may_fold_into_an_identity_claims_one() {
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
        // What asks to be somebody else is for the impersonation filter, which removes it.
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
    fn trailers_that_claim_an_identity_are_not_announced() {
        let mut headers = HeaderMap::new();
        headers.append("x_remote_user", HeaderValue::from_static("root"));
        headers.append(TRAILER, HeaderValue::from_static("X-Sum, X_Remote_User"));
        headers.append(TRAILER, HeaderValue::from_static("x-remote-group"));
        IdentityHeaders::default().with_standard().strip(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[TRAILER], "X-Sum");
    }
}
