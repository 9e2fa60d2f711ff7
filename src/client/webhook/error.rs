//! [`CallError`]: why the call of a webhook failed.

use crate::proxy::tls;
use std::fmt;
use std::sync::Arc;

/// Why a call failed. `Display` is upstream's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// There was no response: the message of Go's `url.Error`, such as `Post "https://…": EOF`.
    Transport(String),
    /// There was no response in time: the URL.
    Timeout(String),
    /// The response is an error: its status code, and upstream's message for it.
    Status(u16, String),
    /// The response exceeds the limit: the URL and the limit.
    TooLarge(String, usize),
    /// Too many callers are waiting already: the URL.
    Busy(String),
}

/// The `clientConfig` of a webhook cannot be used, so the webhook is never called. Upstream's message.
#[derive(Clone, Debug, thiserror::Error)]
#[error("could not get REST client: {0}")]
pub(crate) struct UnusableConfig(#[source] Arc<ConfigError>);

/// An error in the `clientConfig` of a webhook.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("parse {url:?}: {source}")]
    Url { url: String, source: http::uri::InvalidUri },
    #[error("{0:?} is not an https URL")]
    NotHttps(String),
    #[error("webhook configuration must have either service or URL")]
    NoTarget,
    #[error("caBundle: {0}")]
    Base64(#[source] base64::DecodeError),
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// Why the Service of a webhook has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    /// The server does not know the Services yet.
    #[error("the server is still starting")]
    Starting,
    /// Upstream's message, such as `service "x" not found`.
    #[error("{0}")]
    NoAddress(String),
}

impl<E: Into<ConfigError>> From<E> for UnusableConfig {
    fn from(e: E) -> Self {
        Self(Arc::new(e.into()))
    }
}

/// A call without a response, in Go's wording.
pub(super) fn failed(url: &str, why: impl fmt::Display) -> CallError {
    CallError::Transport(format!("Post {url:?}: {why}"))
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(text) | Self::Status(_, text) => f.write_str(text),
            Self::Timeout(url) => write!(f, "Post {url:?}: context deadline exceeded"),
            Self::TooLarge(url, limit) => write!(f, "Post {url:?}: the response is larger than {limit} bytes"),
            Self::Busy(url) => write!(f, "Post {url:?}: too many calls are waiting for this webhook"),
        }
    }
}

impl std::error::Error for CallError {}
