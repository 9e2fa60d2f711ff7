//! Bearer tokens, in the `Authorization` header ([`BearerToken`]) or as a WebSocket subprotocol
//! ([`WebSocketToken`]). The [`TokenAuthenticator`] behind them decides about the token.

use super::{AuthenticatedUser, AuthenticationError, Authenticator, Credentials, SyncOutcome};
use crate::apimachinery::field::aggregate_texts;
use crate::request::UserInfo;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use std::collections::HashSet;
use std::sync::Arc;

/// Prefix of the WebSocket subprotocol that carries a token, base64url-encoded.
pub(crate) const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A token to authenticate, and the audiences of the caller.
#[derive(Clone, Copy)]
pub struct PresentedToken<'a> {
    /// The token as it was presented, not yet verified.
    pub token: &'a str,
    /// The token must be valid for one of these; empty: any audience is accepted.
    pub audiences: &'a [String],
}

/// An object that a cached authentication depends on, such as the token's ServiceAccount in the version that
/// was read.
pub(crate) trait CacheDependency: std::fmt::Debug + Send + Sync + 'static {
    /// True if the object is certainly unchanged by any write acknowledged before this call. Never waits;
    /// when in doubt, returns false.
    fn is_unchanged(&self) -> bool;
}

/// The result of token authentication.
#[derive(Clone, Debug, Default)]
pub struct TokenUser {
    /// The user whose token it is.
    pub user: Arc<UserInfo>,
    /// The requested audiences that the token is valid for; empty if none were requested, or if the token has
    /// no restriction.
    pub audiences: Vec<String>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Added to the audit event of the request, such as the Secret of a legacy token.
    pub annotations: Vec<(&'static str, String)>,
    /// The objects this result depends on; a cache may reuse it while they all hold. Empty if none are
    /// tracked.
    pub(crate) dependencies: Vec<Arc<dyn CacheDependency>>,
}

impl TokenUser {
    /// True if every object this result depends on is unchanged.
    pub(crate) fn is_current(&self) -> bool {
        self.dependencies.iter().all(|dependency| dependency.is_unchanged())
    }
}

impl From<Arc<UserInfo>> for TokenUser {
    fn from(user: Arc<UserInfo>) -> Self {
        Self {
            user,
            ..Self::default()
        }
    }
}

/// Authenticates one type of token.
///
/// ```
/// use async_trait::async_trait;
/// use aws_lc_rs::constant_time::verify_slices_are_equal;
/// use std::sync::Arc;
/// use torana::sdk::authn::{
///     AuthenticationError, Authenticator, BearerToken, Credentials, PresentedToken, TokenAuthenticator, TokenUser,
///     Union, UserInfo,
/// };
///
/// /// One token, which is the robot's.
/// struct RobotToken(String);
///
/// #[async_trait]
/// impl TokenAuthenticator for RobotToken {
///     async fn authenticate_token(
///         &self,
///         presented: PresentedToken<'_>,
///     ) -> Result<Option<TokenUser>, AuthenticationError> {
///         let is_it = verify_slices_are_equal(presented.token.as_bytes(), self.0.as_bytes()).is_ok();
///         let robot = UserInfo { name: "robot".to_owned(), ..UserInfo::default() };
///         // Another token may be known to another authenticator.
///         Ok(is_it.then(|| TokenUser::from(Arc::new(robot))))
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tokens = BearerToken::new(Arc::new(RobotToken("secret".to_owned())));
/// let callers = Union::new(vec![Arc::new(tokens)]);
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert(http::header::AUTHORIZATION, http::HeaderValue::from_static("Bearer secret"));
/// let credentials = Credentials { headers: &headers, peer: None, path: "/", warnings: None };
/// let found = callers.authenticate(credentials).await?.ok_or("the request has a token")?;
/// assert_eq!(found.user.name, "robot");
/// assert!(found.user.in_group("system:authenticated"));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// Authenticates a token. `Ok(None)` means that it is not of this type.
    async fn authenticate_token(&self, presented: PresentedToken<'_>)
    -> Result<Option<TokenUser>, AuthenticationError>;

    /// The cached result for a token, if there is one.
    fn authenticate_sync(&self, _presented: PresentedToken<'_>) -> Option<Arc<TokenUser>> {
        None
    }
}

#[async_trait]
impl<A: TokenAuthenticator + ?Sized> TokenAuthenticator for Arc<A> {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        (**self).authenticate_token(presented).await
    }

    fn authenticate_sync(&self, presented: PresentedToken<'_>) -> Option<Arc<TokenUser>> {
        (**self).authenticate_sync(presented)
    }
}

/// Wraps tokens without an audience claim. They are valid for all of the server's own audiences.
pub(crate) struct WithServerAudiences<A> {
    tokens: A,
    own: Vec<String>,
}

impl<A: TokenAuthenticator> WithServerAudiences<A> {
    /// Adds the audience check to `tokens`; `own` are the server's audiences.
    pub(crate) fn new(tokens: A, own: Vec<String>) -> Self {
        Self { tokens, own }
    }
}

/// The elements of `wanted` that are also in `some`, in the order of `wanted` and as often as there.
pub(crate) fn intersection(some: &[String], wanted: &[String]) -> Vec<String> {
    // A client controls the length of both lists (a TokenReview and its token), so avoid the quadratic
    // comparison.
    let some: HashSet<&str> = some.iter().map(String::as_str).collect();
    wanted.iter().filter(|a| some.contains(a.as_str())).cloned().collect()
}

#[async_trait]
impl<A: TokenAuthenticator> TokenAuthenticator for WithServerAudiences<A> {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        // Nothing to compare: the caller accepts any audience, or this server has none.
        if presented.audiences.is_empty() || self.own.is_empty() {
            return self.tokens.authenticate_token(presented).await;
        }
        let audiences = intersection(&self.own, presented.audiences);
        // Not an error: another authenticator may accept the token for the audiences asked for. The token
        // itself is not even looked up.
        if audiences.is_empty() {
            return Ok(None);
        }
        let found = self.tokens.authenticate_token(presented).await?;
        Ok(found.map(|user| TokenUser { audiences, ..user }))
    }
}

/// Tries several token authenticators. Errors only count if none of them accepts the token.
pub(crate) struct TokenUnion(Vec<Arc<dyn TokenAuthenticator>>);

impl TokenUnion {
    /// A union that tries `members` in order.
    pub(crate) fn new(members: Vec<Arc<dyn TokenAuthenticator>>) -> Self {
        Self(members)
    }
}

#[async_trait]
impl TokenAuthenticator for TokenUnion {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        let mut refusals = Vec::new();
        for member in &self.0 {
            match member.authenticate_token(presented).await {
                Ok(Some(user)) => return Ok(Some(user)),
                Ok(None) => {}
                // Goes on: the token may be of another type, which this member could only tell by failing.
                Err(e) => refusals.push(e.0),
            }
        }
        match refusals.is_empty() {
            true => Ok(None),
            false => Err(AuthenticationError(aggregate_texts(refusals))),
        }
    }
}

/// Authenticates by `Authorization: Bearer <token>`.
pub struct BearerToken(TokenExtractor);

impl BearerToken {
    /// Reads the header and passes the token to `tokens`.
    pub fn new(tokens: Arc<dyn TokenAuthenticator>) -> Self {
        Self::for_audiences(tokens, Vec::new())
    }

    /// Like [`BearerToken::new`], for tokens that are valid for any of `audiences`.
    pub fn for_audiences(tokens: Arc<dyn TokenAuthenticator>, audiences: Vec<String>) -> Self {
        Self(TokenExtractor { tokens, audiences })
    }
}

#[async_trait]
impl Authenticator for BearerToken {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        let Some(token) = header_token(&from) else {
            return Ok(None);
        };
        self.0.ask(token, from, false).await.map(Some)
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        let Some(token) = header_token(&from) else {
            return SyncOutcome::NoCredentials;
        };
        match self.0.tokens.authenticate_sync(self.0.about(token)) {
            Some(found) => SyncOutcome::Authenticated(identified(&found, from, false)),
            // Absence from the cache says nothing about the token; only the slow path may reject it.
            None => SyncOutcome::Unknown,
        }
    }
}

/// The error for a token that no authenticator recognises, as upstream's.
pub(crate) const INVALID: &str = "invalid bearer token";

struct TokenExtractor {
    tokens: Arc<dyn TokenAuthenticator>,
    audiences: Vec<String>,
}

impl TokenExtractor {
    fn about<'a>(&'a self, token: &'a str) -> PresentedToken<'a> {
        PresentedToken {
            token,
            audiences: &self.audiences,
        }
    }

    async fn ask(
        &self,
        token: &str,
        from: Credentials<'_>,
        strip_subprotocol: bool,
    ) -> Result<AuthenticatedUser, AuthenticationError> {
        let found = self.tokens.authenticate_token(self.about(token)).await?;
        let found = found.ok_or_else(|| AuthenticationError::new(INVALID))?;
        Ok(identified(&found, from, strip_subprotocol))
    }
}

fn identified(found: &TokenUser, from: Credentials<'_>, strip_subprotocol: bool) -> AuthenticatedUser {
    if let Some(warnings) = from.warnings {
        found.warnings.iter().for_each(|text| warnings.add(text));
    }
    AuthenticatedUser {
        user: found.user.clone(),
        strip_subprotocol,
        annotations: found.annotations.clone(),
    }
}

/// Extracts the token with upstream's parsing (`pkg/authentication/request/bearertoken`): only the first
/// header line counts, the scheme is case-insensitive, and the token is the second of at most three
/// space-separated parts. Two spaces before the token hence make it empty.
fn header_token<'a>(from: &Credentials<'a>) -> Option<&'a str> {
    // Trimmed as a whole, but not between the parts: upstream splits at single spaces.
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

/// Authenticates by a token in `Sec-WebSocket-Protocol`; browsers cannot set `Authorization` on WebSockets.
pub(crate) struct WebSocketToken(TokenExtractor);

impl WebSocketToken {
    /// Reads the subprotocol and passes the token to `tokens`.
    pub(crate) fn new(tokens: Arc<dyn TokenAuthenticator>) -> Self {
        Self::for_audiences(tokens, Vec::new())
    }

    /// Like [`WebSocketToken::new`], for tokens that are valid for any of `audiences`.
    pub(crate) fn for_audiences(tokens: Arc<dyn TokenAuthenticator>, audiences: Vec<String>) -> Self {
        Self(TokenExtractor { tokens, audiences })
    }
}

#[async_trait]
impl Authenticator for WebSocketToken {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        if !is_websocket(from.headers) {
            return Ok(None);
        }
        let (mut token, mut others) = (None, 0usize);
        for protocol in subprotocols(from.headers) {
            match protocol.strip_prefix(SUBPROTOCOL) {
                None => others += 1,
                // Two tokens are ambiguous: which one counts must not depend on the parser.
                Some(_) if token.is_some() => {
                    return Err(AuthenticationError::new(
                        "multiple base64.bearer.authorization tokens specified",
                    ));
                }
                Some(encoded) => {
                    let bytes = URL_SAFE_NO_PAD
                        .decode(encoded)
                        .map_err(|_| AuthenticationError::new("invalid base64.bearer.authorization token encoding"))?;
                    let text = String::from_utf8(bytes)
                        .map_err(|_| AuthenticationError::new("invalid base64.bearer.authorization token"))?;
                    token = Some(text).filter(|t| !t.is_empty());
                }
            }
        }
        let Some(token) = token else { return Ok(None) };
        // The server must select a subprotocol in its response, and it must not echo the token.
        if others == 0 {
            return Err(AuthenticationError::new("missing additional subprotocol"));
        }
        self.0.ask(&token, from, true).await.map(Some)
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        // WebSocket requests are too rare to deserve a fast path.
        match is_websocket(from.headers) {
            true => SyncOutcome::Unknown,
            false => SyncOutcome::NoCredentials,
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
        // The others are dropped with the token; no client offers as many.
        .take(128)
        .map(str::trim)
}

/// Removes the token from `Sec-WebSocket-Protocol`. The remaining subprotocols are joined into one line.
pub(crate) fn strip_subprotocol(headers: &mut HeaderMap) {
    let rest: Vec<&str> = subprotocols(headers).filter(|p| !p.starts_with(SUBPROTOCOL)).collect();
    let rest = rest.join(",");
    match http::HeaderValue::from_str(&rest) {
        Ok(v) if !rest.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, v)),
        // Nothing is left, or it cannot be a header value. Removed in either case: the token must not reach a
        // backend.
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
        async fn authenticate_token(
            &self,
            presented: PresentedToken<'_>,
        ) -> Result<Option<TokenUser>, AuthenticationError> {
            Ok((presented.token == self.0).then(|| Arc::new(UserInfo::system("u", &[])).into()))
        }
    }

    async fn bearer(header: &str) -> (Result<bool, String>, Vec<String>) {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        let warnings = Warnings::default();
        let from = Credentials {
            headers: &headers,
            peer: None,
            path: "/",
            warnings: Some(&warnings),
        };
        let got = BearerToken::new(Arc::new(Knows("tok"))).authenticate(from).await;
        (got.map(|u| u.is_some()).map_err(|e| e.0), warnings.take())
    }

    #[tokio::test]
    async fn the_authorization_header_is_parsed_as_upstream() {
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
            path: "/",
            warnings: None,
        };
        let got = WebSocketToken::new(Arc::new(Knows("tok"))).authenticate(from).await;
        got.map(|u| u.is_some_and(|u| u.strip_subprotocol)).map_err(|e| e.0)
    }

    #[tokio::test]
    async fn a_subprotocol_can_carry_the_token() {
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
    fn stripping_the_token_keeps_the_other_subprotocols() {
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
