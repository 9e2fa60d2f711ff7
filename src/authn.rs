//! Who calls: authenticators and their union, in upstream's order: front-proxy headers, client certificate, bearer
//! token (header or WebSocket subprotocol), anonymous.
//!
//! Entry points: [`Union::new`] and the authenticators' constructors. The authentication filter calls them, mints the
//! proof and cleans the request; nothing here changes a request.

pub mod anonymous;
pub mod bearer;
pub mod bootstrap;
pub mod cache;
pub mod delegated;
pub mod jwt;
pub mod oidc;
pub mod request_header;
pub mod service_account;
pub mod token_file;
mod union;
pub mod webhook;
pub mod x509;

pub use anonymous::Anonymous;
pub use bearer::{
    Asked, BearerToken, ForOwnAudiences, Ground, TokenAuthenticator, TokenUnion, TokenUser, WebSocketToken,
};
pub use request_header::{RequestHeader, RequestHeaderNames};
pub use token_file::TokenFile;
pub use union::{Union, WithAnonymous};
pub use x509::X509;

use crate::request::user::{AUTHENTICATED, UNAUTHENTICATED};
use crate::request::{UserInfo, Warnings};
use async_trait::async_trait;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// What an authenticator may look at.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The chain the client presented on its connection, unverified, its own certificate first.
    pub peer: Option<&'a Arc<Vec<CertificateDer<'static>>>>,
    /// The request's path.
    pub path: &'a str,
    /// Where to put texts for the caller.
    pub warnings: Option<&'a Warnings>,
}

/// A recognised caller.
#[derive(Clone, Debug)]
pub struct Identified {
    /// Who.
    pub user: Arc<UserInfo>,
    /// The credentials came as a WebSocket subprotocol, which must not travel on.
    pub strip_subprotocol: bool,
    /// Facts about the credentials for the audit event.
    pub annotations: Vec<(&'static str, String)>,
}

/// Why credentials were refused. The caller reads only `Unauthorized`; this text is for logs and TokenReviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// What is known about a caller without waiting.
#[derive(Clone, Debug)]
pub enum AtOnce {
    /// Who it is.
    Known(Identified),
    /// There is nothing this authenticator knows how to read.
    Nobody,
    /// Refused, unless somebody else recognises the caller; `authenticate` says why.
    Refused,
    /// `authenticate` has to be asked.
    Unknown,
}

/// Recognises callers.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// `Ok(None)`: there is nothing this authenticator knows how to read.
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused>;

    /// What `authenticate` would say, where nothing has to be waited for.
    fn at_once(&self, _from: Credentials<'_>) -> AtOnce {
        AtOnce::Unknown
    }
}

impl Identified {
    /// A caller, recognised by something that need not be removed.
    pub fn new(user: Arc<UserInfo>) -> Self {
        Self {
            user,
            strip_subprotocol: false,
            annotations: Vec::new(),
        }
    }
}

impl From<Option<Identified>> for AtOnce {
    fn from(found: Option<Identified>) -> Self {
        found.map_or(Self::Nobody, Self::Known)
    }
}

impl Refused {
    /// A refusal with its reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Adds `system:authenticated` as the last group, unless the groups speak of it already.
pub fn add_authenticated(user: &mut UserInfo) {
    if !speaks_of_authentication(user) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
}

fn speaks_of_authentication(user: &UserInfo) -> bool {
    user.groups.iter().any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED)
}
