//! Bearer tokens, in the `Authorization` header or as a WebSocket subprotocol.

use super::{Authenticator, Credentials, Identified, Refused};
use crate::request::UserInfo;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use std::sync::Arc;

/// The prefix of a subprotocol that holds a token.
pub const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Knows some tokens.
#[async_trait]
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// `Ok(None)`: not one of mine.
    async fn authenticate_token(&self, token: &str) -> Result<Option<Arc<UserInfo>>, Refused>;
}

/// Several kinds of tokens as one; refusals only count where nobody knows the token.
pub struct TokenUnion(Vec<Arc<dyn TokenAuthenticator>>);

impl TokenUnion {
    /// A union in the order given.
    pub fn new(members: Vec<Arc<dyn TokenAuthenticator>>) -> Self {
        Self(members)
    }
}

#[async_trait]
impl TokenAuthenticator for TokenUnion {
    async fn authenticate_token(&self, token: &str) -> Result<Option<Arc<UserInfo>>, Refused> {
        let mut refusals = Vec::new();
        for member in &self.0 {
            match member.authenticate_token(token).await {
                Ok(Some(user)) => return Ok(Some(user)),
                Ok(None) => {}
                Err(e) => refusals.push(e.0),
            }
        }
        match refusals.len() {
            0 => Ok(None),
            1 => Err(Refused(refusals.swap_remove(0))),
            _ => Err(Refused(format!("[{}]", refusals.join(", ")))),
        }
    }
}

/// Reads `Authorization: Bearer <token>`.
pub struct BearerToken(Arc<dyn TokenAuthenticator>);

impl BearerToken {
    /// Asks `tokens` about what it reads.
    pub fn new(tokens: Arc<dyn TokenAuthenticator>) -> Self {
        Self(tokens)
    }
}

#[async_trait]
impl Authenticator for BearerToken {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        let Some(token) = header_token(&from) else {
            return Ok(None);
        };
        match self.0.authenticate_token(token).await? {
            Some(user) => Ok(Some(Identified::new(user))),
            None => Err(Refused::new("invalid bearer token")),
        }
    }
}

/// Only the first header line counts; the scheme in any case; the token is the second of at most three words, and two
/// spaces before it make it empty.
fn header_token<'a>(from: &Credentials<'a>) -> Option<&'a str> {
    let header = from.headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = header.splitn(3, ' ');
    if !words.next()?.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let token = words.next()?;
    if token.is_empty() {
        if words.next().is_some_and(|rest| !rest.is_empty())
            && let Some(w) = from.warnings
        {
            w.add("the provided Authorization header contains extra space before the bearer token, and is ignored");
        }
        return None;
    }
    Some(token)
}

/// Reads a token out of `Sec-WebSocket-Protocol`.
pub struct WebSocketToken(Arc<dyn TokenAuthenticator>);

impl WebSocketToken {
    /// Asks `tokens` about what it reads.
    pub fn new(tokens: Arc<dyn TokenAuthenticator>) -> Self {
        Self(tokens)
    }
}

#[async_trait]
impl Authenticator for WebSocketToken {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        if !is_websocket(from.headers) {
            return Ok(None);
        }
        let (mut token, mut others) = (None, 0usize);
        for protocol in subprotocols(from.headers) {
            match protocol.strip_prefix(SUBPROTOCOL) {
                None => others += 1,
                Some(_) if token.is_some() => {
                    return Err(Refused::new("multiple base64.bearer.authorization tokens specified"));
                }
                Some(encoded) => {
                    let bytes = URL_SAFE_NO_PAD
                        .decode(encoded)
                        .map_err(|_| Refused::new("invalid base64.bearer.authorization token encoding"))?;
                    let text = String::from_utf8(bytes)
                        .map_err(|_| Refused::new("invalid base64.bearer.authorization token"))?;
                    token = Some(text).filter(|t| !t.is_empty());
                }
            }
        }
        let Some(token) = token else { return Ok(None) };
        if others == 0 {
            return Err(Refused::new("missing additional subprotocol"));
        }
        match self.0.authenticate_token(&token).await? {
            Some(user) => Ok(Some(Identified {
                user,
                strip_subprotocol: true,
            })),
            None => Err(Refused::new("invalid bearer token")),
        }
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let says = |name, word: &str| {
        headers.get_all(name).iter().any(|v| {
            v.to_str()
                .is_ok_and(|v| v.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
        })
    };
    says(UPGRADE, "websocket") && says(CONNECTION, "upgrade")
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
}

/// Removes the token from `Sec-WebSocket-Protocol`; the other subprotocols stay, on one line.
pub fn strip_subprotocol(headers: &mut HeaderMap) {
    let rest: Vec<&str> = subprotocols(headers).filter(|p| !p.starts_with(SUBPROTOCOL)).collect();
    let rest = rest.join(",");
    match http::HeaderValue::from_str(&rest) {
        Ok(v) if !rest.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, v)),
        _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Warnings;

    struct Knows(&'static str);

    #[async_trait]
    impl TokenAuthenticator for Knows {
        async fn authenticate_token(&self, token: &str) -> Result<Option<Arc<UserInfo>>, Refused> {
            Ok((token == self.0).then(|| Arc::new(UserInfo::system("u", &[]))))
        }
    }

    async fn bearer(header: &str) -> (Result<bool, String>, Vec<String>) {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        let warnings = Warnings::default();
        let from = Credentials {
            headers: &headers,
            peer: None,
            warnings: Some(&warnings),
        };
        let got = BearerToken::new(Arc::new(Knows("tok"))).authenticate(from).await;
        (got.map(|u| u.is_some()).map_err(|e| e.0), warnings.take())
    }

    #[tokio::test]
    async fn the_header_is_read_as_upstream_reads_it() {
        for (header, want) in [
            ("Bearer tok", Ok(true)),
            ("bearer tok", Ok(true)),
            ("BEARER tok more", Ok(true)),
            ("  Bearer tok ", Ok(true)),
            ("Bearer nope", Err("invalid bearer token".to_owned())),
            ("Bearer", Ok(false)),
            ("Bearer ", Ok(false)),
            ("Bearer  tok", Ok(false)),
            ("Basic YTpi", Ok(false)),
            ("tok", Ok(false)),
        ] {
            let (got, warnings) = bearer(header).await;
            assert_eq!(got, want, "{header:?}");
            assert_eq!(warnings.len(), usize::from(header == "Bearer  tok"), "{header:?}");
        }
    }

    async fn websocket(protocols: &[&str]) -> Result<bool, String> {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, "websocket".parse().unwrap());
        headers.insert(CONNECTION, "keep-alive, Upgrade".parse().unwrap());
        for p in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, p.parse().unwrap());
        }
        let from = Credentials {
            headers: &headers,
            peer: None,
            warnings: None,
        };
        let got = WebSocketToken::new(Arc::new(Knows("tok"))).authenticate(from).await;
        got.map(|u| u.is_some_and(|u| u.strip_subprotocol)).map_err(|e| e.0)
    }

    #[tokio::test]
    async fn a_subprotocol_may_hold_the_token() {
        let token = format!("{SUBPROTOCOL}{}", URL_SAFE_NO_PAD.encode("tok"));
        let e = |s: &str| Err(s.to_owned());
        assert_eq!(websocket(&["v4.channel.k8s.io"]).await, Ok(false));
        assert_eq!(websocket(&[&format!("{token}, v4.channel.k8s.io")]).await, Ok(true));
        assert_eq!(websocket(&["v4", &token]).await, Ok(true));
        assert_eq!(websocket(&[&token]).await, e("missing additional subprotocol"));
        assert_eq!(
            websocket(&[&token, &token, "v4"]).await,
            e("multiple base64.bearer.authorization tokens specified")
        );
        assert_eq!(
            websocket(&[&format!("{SUBPROTOCOL}d$"), "v4"]).await,
            e("invalid base64.bearer.authorization token encoding")
        );
    }

    #[test]
    fn the_token_is_stripped_and_the_rest_stays() {
        let mut headers = HeaderMap::new();
        headers.append(
            SEC_WEBSOCKET_PROTOCOL,
            "a, base64url.bearer.authorization.k8s.io.dG9r".parse().unwrap(),
        );
        headers.append(SEC_WEBSOCKET_PROTOCOL, "b".parse().unwrap());
        strip_subprotocol(&mut headers);
        assert_eq!(
            headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect::<Vec<_>>(),
            ["a,b"]
        );
    }
}
