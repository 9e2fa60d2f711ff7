//! Front-proxy authentication (upstream's `pkg/authentication/request/headerrequest`): identity headers are
//! trusted only if the client's certificate is issued by the proxy CA.

use super::x509::{ProxyMemo, common_name_in, not_verified, verify_chain};
use super::{AuthenticatedUser, AuthenticationError, Authenticator, Credentials, SyncOutcome, add_authenticated};
use crate::request::{ClientCaSource, UserInfo};
use async_trait::async_trait;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::borrow::Cow;
use std::sync::Arc;

/// The identity headers to read, in order of preference.
#[derive(Clone, Debug, Default)]
pub struct RequestHeaderNames {
    /// `--requestheader-username-headers`.
    pub username: Vec<HeaderName>,
    /// `--requestheader-uid-headers`.
    pub uid: Vec<HeaderName>,
    /// `--requestheader-group-headers`.
    pub group: Vec<HeaderName>,
    /// `--requestheader-extra-headers-prefix`, lower-case.
    pub extra_prefix: Vec<String>,
}

impl RequestHeaderNames {
    /// The standard `X-Remote-*` headers.
    pub fn standard() -> Self {
        Self {
            username: vec![HeaderName::from_static("x-remote-user")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefix: vec!["x-remote-extra-".to_owned()],
        }
    }
}

/// Authenticates the user named in a trusted front proxy's headers.
pub(crate) struct RequestHeader {
    ca: Arc<dyn ClientCaSource>,
    names: RequestHeaderNames,
    trusted: ProxyMemo,
}

impl RequestHeader {
    /// Trusts proxies whose certificate was issued by `ca` (`--requestheader-client-ca-file`) and has a
    /// common name in `allowed_names`; an empty list allows any name.
    pub(crate) fn new(ca: Arc<dyn ClientCaSource>, allowed_names: Vec<String>, names: RequestHeaderNames) -> Self {
        Self {
            ca,
            names,
            trusted: ProxyMemo::new(move |of| {
                verify_chain(of.chain, of.roots, of.now)
                    .map_err(|e| AuthenticationError(format!("front-proxy certificate is not trusted: {}", e.0)))?;
                let cn = of.leaf.as_ref().map_or_else(|_| String::new(), common_name_in);
                if allowed_names.is_empty() || allowed_names.contains(&cn) {
                    return Ok(());
                }
                Err(AuthenticationError(format!(
                    "x509: subject with cn={cn} is not in the allowed list"
                )))
            }),
        }
    }
}

#[async_trait]
impl Authenticator for RequestHeader {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        let Some(chain) = from.peer.filter(|c| !c.is_empty()) else {
            return Ok(None);
        };
        let trusted = self.trusted.get(chain, &self.ca.current()).await;
        trusted.ok_or_else(not_verified)??;
        Ok(self.stated_user(from))
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        let Some(chain) = from.peer.filter(|c| !c.is_empty()) else {
            return SyncOutcome::NoCredentials;
        };
        match self.trusted.get_sync(chain, &self.ca.current()) {
            Some(Ok(())) => SyncOutcome::from(self.stated_user(from)),
            Some(Err(_)) => SyncOutcome::Rejected,
            None => SyncOutcome::Unknown,
        }
    }
}

impl RequestHeader {
    /// The user of the headers. The caller must have verified the chain: before, they are mere claims of the client.
    fn stated_user(&self, from: Credentials<'_>) -> Option<AuthenticatedUser> {
        let user = stated(&self.names, from.headers);
        user.map(|user| AuthenticatedUser::new(Arc::new(user)))
    }
}

/// Reads the user from the identity headers; `None` without a user name. The caller must have verified the
/// proxy.
pub fn stated(names: &RequestHeaderNames, headers: &HeaderMap) -> Option<UserInfo> {
    let mut user = UserInfo {
        name: first_value(headers, &names.username)?.to_owned(),
        uid: first_value(headers, &names.uid).unwrap_or("").to_owned(),
        ..Default::default()
    };
    for header in &names.group {
        let values = headers.get_all(header).iter().filter_map(text);
        // Empty lines are skipped, as by upstream's `allHeaderValues`.
        user.groups.extend(values.filter(|v| !v.is_empty()).map(str::to_owned));
    }
    for (header, value) in headers {
        let prefixes = &names.extra_prefix;
        let Some(key) = prefixes.iter().find_map(|p| header.as_str().strip_prefix(p.as_str())) else {
            continue;
        };
        if let Some(value) = text(value) {
            let values = user.extra.entry(unescape_key(key).into_owned()).or_default();
            values.push(value.to_owned());
        }
    }
    add_authenticated(&mut user);
    Some(user)
}

fn first_value<'a>(headers: &'a HeaderMap, names: &[HeaderName]) -> Option<&'a str> {
    let values = names.iter().filter_map(|n| headers.get(n));
    // As upstream, a header with an empty value is passed over.
    values.filter_map(text).find(|v| !v.is_empty())
}

/// A header value as UTF-8. [`HeaderValue::to_str`] accepts ASCII only and would silently drop non-ASCII
/// users and groups.
fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// Percent-decodes the key of an extra header. A key with an invalid escape is kept as is, like upstream
/// does.
pub fn unescape_key(key: &str) -> Cow<'_, str> {
    crate::request::info::decode_path(key).unwrap_or(Cow::Borrowed(key))
}

#[cfg(test)]
mod tests {
    use super::super::x509::X509;
    use super::super::x509::tests::{ask, ca};
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut h = HeaderMap::new();
        for (k, v) in pairs {
            h.append(
                HeaderName::from_bytes(k.as_bytes()).unwrap(),
                HeaderValue::from_bytes(v.as_bytes()).unwrap(),
            );
        }
        h
    }

    #[tokio::test]
    async fn a_trusted_proxy_supplies_the_user() {
        let ca = ca("front-proxy");
        let source = ca.pool();
        let a = RequestHeader::new(source, vec!["aggregator".into()], RequestHeaderNames::standard());
        let h = headers(&[
            ("X-Remote-User", "jané"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", "ü"),
            ("X-Remote-Extra-Scopes.example.com%2ffoo", "x"),
            ("X-Remote-Extra-Bad%zz", "y"),
        ]);
        let proxy = ca.client("aggregator", &[]);
        let user = ask(&a, &proxy, &h).await.unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jané", "7"));
        assert_eq!(user.groups, ["a", "ü", "system:authenticated"]);
        let extra: Vec<_> = user.extra.keys().map(String::as_str).collect();
        assert_eq!(extra, ["bad%zz", "scopes.example.com/foo"]);
        assert!(ask(&a, &proxy, &HeaderMap::new()).await.unwrap().is_none());
        let e = ask(&a, &ca.client("someone", &[]), &h).await.unwrap_err();
        assert_eq!(e.0, "x509: subject with cn=someone is not in the allowed list");
    }

    #[tokio::test]
    async fn large_chains_of_proxies_are_not_verified_on_the_reactor() {
        let ca = ca("front-proxy");
        let a = RequestHeader::new(ca.pool(), vec![], RequestHeaderNames::standard());
        let (proxy, h) = (ca.large_client("aggregator"), headers(&[("X-Remote-User", "jane")]));
        let from = Credentials {
            headers: &h,
            peer: Some(&proxy),
            path: "/",
            warnings: None,
        };
        assert!(matches!(a.authenticate_sync(from), SyncOutcome::Unknown));
        assert_eq!(ask(&a, &proxy, &h).await.unwrap().unwrap().name, "jane");
        assert!(matches!(a.authenticate_sync(from), SyncOutcome::Authenticated(_)));
    }

    #[tokio::test]
    async fn identity_headers_of_other_clients_are_ignored() {
        let (front, users) = (ca("front-proxy"), ca("users"));
        let a = super::super::Union::new(vec![
            Arc::new(RequestHeader::new(front.pool(), vec![], RequestHeaderNames::standard())),
            Arc::new(X509::new(users.pool())),
        ]);
        let h = headers(&[("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")]);
        let user = ask(&a, &users.client("jane", &[]), &h).await.unwrap().unwrap();
        assert_eq!(user.name, "jane");
    }
}
