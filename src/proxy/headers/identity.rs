//! The caller's identity as `X-Remote-*` headers. Entry points: [`Identity::try_of`], [`Identity::state`].

use crate::request::headers::{folds_to, folds_to_prefix, remove_all};
use crate::request::{UserInfo, percent};
use http::header::{HeaderMap, HeaderName, HeaderValue};

const X_REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const X_REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const X_REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const X_REMOTE: &str = "x-remote-";
const X_REMOTE_EXTRA: &str = "x-remote-extra-";

/// A header whose value is not allowed in HTTP. Holds the canonical name of the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidValue(pub String);

/// A caller's identity, encoded as headers.
///
/// HTTP/1 connections send names in title case, which matches Go's canonical form, down to the lower-case
/// `%2f` in an escaped extra key.
#[derive(Debug)]
pub(crate) struct Identity(Vec<(HeaderName, HeaderValue)>);

impl Identity {
    /// Encodes the identity of this user.
    ///
    /// # Errors
    /// [`InvalidValue`] if the name, a group or an extra contains bytes that are not allowed in headers.
    pub(crate) fn try_of(user: &UserInfo) -> Result<Self, InvalidValue> {
        let mut all = Vec::with_capacity(2 + user.groups.len() + user.extra.len());
        let mut add = |name: &HeaderName, v: &str| {
            all.push((name.clone(), value(name, v)?));
            Ok(())
        };
        add(&X_REMOTE_USER, &user.name)?;
        // Upstream sends no header for an empty UID.
        if !user.uid.is_empty() {
            add(&X_REMOTE_UID, &user.uid)?;
        }
        for group in &user.groups {
            add(&X_REMOTE_GROUP, group)?;
        }
        for (key, values) in &user.extra {
            let name = HeaderName::from_bytes(extra_name(key).as_bytes())
                .map_err(|_| InvalidValue(format!("X-Remote-Extra-{key}")))?;
            for v in values {
                add(&name, v)?;
            }
        }
        Ok(Self(all))
    }

    /// Removes any identity that the client claims and its credentials, then sets this one.
    pub(crate) fn state(&self, headers: &mut HeaderMap) {
        // `folds_to_prefix` and `folds_to` also match spellings such as `X_Remote_User`, which some backends
        // treat as the same header.
        remove_all(headers, |name| {
            let name = name.as_str();
            let is_claim = folds_to_prefix(name, X_REMOTE)
                && (folds_to_prefix(name, X_REMOTE_EXTRA)
                    || ["x-remote-user", "x-remote-uid", "x-remote-group"]
                        .iter()
                        .any(|h| folds_to(name, h)));
            is_claim || name == "authorization"
        });
        // Appended, because several groups have the same header name.
        for (name, value) in &self.0 {
            headers.append(name.clone(), value.clone());
        }
    }
}

fn value(name: &HeaderName, v: &str) -> Result<HeaderValue, InvalidValue> {
    // `from_str` accepts ASCII only; Go sends other characters as UTF-8.
    HeaderValue::from_str(v)
        .or_else(|_| HeaderValue::from_bytes(v.as_bytes()))
        .map_err(|_| InvalidValue(canonical_name(name.as_str())))
}

/// The header name for an extra key, escaped as upstream does.
fn extra_name(key: &str) -> String {
    format!("{X_REMOTE_EXTRA}{}", percent::encode_header_name(key))
}

/// Go's canonical form of a header name (`textproto.CanonicalMIMEHeaderKey`).
fn canonical_name(name: &str) -> String {
    let mut up = true;
    name.chars()
        .map(|c| {
            let c = if up {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            };
            up = c == '-';
            c
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::headers::tests::{all, map};
    use proptest::prelude::*;

    #[test]
    fn the_identity_replaces_every_claim_of_the_client() {
        let mut h = map(&[
            ("X-Remote-User", "evil"),
            ("X_Remote_User", "evil"),
            ("x.remote_extra.scopes", "all"),
            ("X-Remote-Uid", "1"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Extra-Scopes", "all"),
            ("Authorization", "Bearer secret"),
            ("Cookie", "kept"),
        ]);
        let mut user = UserInfo::system("alice", &["b", "a"]);
        user.extra
            .insert("scopes.example.com/foo".into(), vec!["x".into(), "y".into()]);
        Identity::try_of(&user).unwrap().state(&mut h);
        assert_eq!(all(&h, "x-remote-user"), ["alice"]);
        assert_eq!(all(&h, "x-remote-group"), ["b", "a"]);
        assert_eq!(all(&h, "x-remote-extra-scopes.example.com%2ffoo"), ["x", "y"]);
        assert_eq!(all(&h, "cookie"), ["kept"]);
        assert_eq!(h.len(), 6);
    }

    #[test]
    fn names_match_gos_canonical_form() {
        assert_eq!(
            canonical_name(&extra_name("authentication.kubernetes.io/credential-id")),
            "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id"
        );
    }

    #[test]
    fn an_illegal_extra_value_is_an_error() {
        let mut user = UserInfo::system("alice", &[]);
        user.extra.insert("foo".into(), vec!["a\nb".into()]);
        let why = Identity::try_of(&user).unwrap_err();
        assert_eq!(why, InvalidValue("X-Remote-Extra-Foo".into()));
    }

    proptest! {
        #[test]
        fn extra_keys_survive_lower_casing_and_decoding(key in "[ -~é]{1,20}") {
            let name = extra_name(&key);
            prop_assert!(HeaderName::from_bytes(name.as_bytes()).is_ok());
            let suffix = name.strip_prefix(X_REMOTE_EXTRA).unwrap().to_ascii_lowercase();
            let bytes = percent::decode(&suffix).unwrap().into_owned();
            prop_assert_eq!(bytes, key.bytes().map(|b| b.to_ascii_lowercase()).collect::<Vec<_>>());
        }
    }
}
