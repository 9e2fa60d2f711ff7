//! [`CallError`]: why the call of a webhook failed.

use std::fmt;

/// Why a call failed. `Display` is upstream's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// There was no response: the text of Go's `url.Error`, such as `Post "https://…": EOF`.
    Transport(String),
    /// There was no response in time: the URL.
    Timeout(String),
    /// The response is an error: its status code, and the text upstream makes of it.
    Status(u16, String),
    /// The response exceeds the limit: the URL and the limit.
    TooLarge(String, usize),
    /// Too many callers are waiting already: the URL.
    Busy(String),
}

/// A call without a response, with Go's text of a request that failed.
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
