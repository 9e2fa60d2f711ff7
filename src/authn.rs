//! Authentication: authenticators and their union, in upstream's order: front-proxy headers, client
//! certificate, bearer token (header or WebSocket subprotocol), anonymous.
//!
//! Entry points: the [`Authenticator`] trait and [`Union`]. Authenticators only read the request. The
//! authentication filter (`server::filters::authentication`) calls them, mints the proof and removes
//! credentials from the request.

pub(crate) mod anonymous;
pub(crate) mod bearer;
pub(crate) mod bootstrap;
pub(crate) mod cache;
pub(crate) mod delegated;
pub(crate) mod jwt;
pub(crate) mod oidc;
pub(crate) mod request_header;
mod reviewed;
pub(crate) mod service_account;
pub(crate) mod token_file;
mod token_tag;
mod union;
pub(crate) mod webhook;
pub(crate) mod x509;

pub(crate) use anonymous::Anonymous;
pub use bearer::{BearerToken, PresentedToken, TokenAuthenticator, TokenUser};
pub(crate) use bearer::{CacheDependency, TokenUnion, WebSocketToken, WithServerAudiences};
pub(crate) use request_header::RequestHeader;
pub use request_header::RequestHeaderNames;
pub use token_file::TokenFile;
pub(crate) use token_tag::NoRandomNumbers;
pub use union::Union;
pub(crate) use union::WithAnonymous;
pub use x509::X509;

use crate::request::user::{AUTHENTICATED, UNAUTHENTICATED};
use crate::request::{UserInfo, Warnings};
use async_trait::async_trait;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// The parts of a request that an authenticator may read.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// All headers of the request, `Authorization` among them.
    pub headers: &'a HeaderMap,
    /// The client's certificate chain, leaf first, not yet verified.
    pub peer: Option<&'a Arc<Vec<CertificateDer<'static>>>>,
    /// The request path: anonymous access may be limited to some.
    pub path: &'a str,
    /// Sink for warnings to the client.
    pub warnings: Option<&'a Warnings>,
}

/// The result of successful authentication.
#[derive(Clone, Debug)]
pub struct AuthenticatedUser {
    /// The caller's name, UID, groups and extra values.
    pub user: Arc<UserInfo>,
    /// True if the credentials came as a WebSocket subprotocol, which must not be forwarded to backends.
    pub strip_subprotocol: bool,
    /// Audit annotations contributed by the authenticator (key, value).
    pub annotations: Vec<(&'static str, String)>,
}

/// Why credentials were rejected. Clients only see `Unauthorized`; this text goes to logs and TokenReviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationError(pub String);

/// Outcome of the synchronous fast path, [`Authenticator::authenticate_sync`].
#[derive(Clone, Debug)]
pub enum SyncOutcome {
    /// The credentials are valid; nothing has to be awaited.
    Authenticated(AuthenticatedUser),
    /// The request has no credentials of this authenticator's type.
    NoCredentials,
    /// Rejected, unless another authenticator accepts the request. Call `authenticate` for the reason.
    Rejected,
    /// Not known without I/O: call `authenticate`.
    Unknown,
}

/// Authenticates requests by one type of credential.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Authenticates the request. `Ok(None)` means it has no credentials of this type.
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError>;

    /// The result of `authenticate` if it is available without waiting. A union stops at the first `Unknown`.
    fn authenticate_sync(&self, _from: Credentials<'_>) -> SyncOutcome {
        SyncOutcome::Unknown
    }
}

impl AuthenticatedUser {
    /// A user whose credentials may stay in the request.
    pub fn new(user: Arc<UserInfo>) -> Self {
        Self {
            user,
            strip_subprotocol: false,
            annotations: Vec::new(),
        }
    }
}

impl From<Option<AuthenticatedUser>> for SyncOutcome {
    fn from(found: Option<AuthenticatedUser>) -> Self {
        found.map_or(Self::NoCredentials, Self::Authenticated)
    }
}

impl AuthenticationError {
    /// Rejection with the given reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for AuthenticationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuthenticationError {}

/// Appends `system:authenticated`, unless the groups contain it or `system:unauthenticated`. Same rule as
/// upstream's `pkg/authentication/group/authenticated_group_adder.go`.
pub(crate) fn add_authenticated(user: &mut UserInfo) {
    // Front proxies and impersonation may state `system:unauthenticated`; adding the other group would
    // contradict it.
    if !speaks_of_authentication(user) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
}

fn speaks_of_authentication(user: &UserInfo) -> bool {
    user.groups.iter().any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED)
}
