//! [`Failure`]: a request of a control loop that did not succeed.

use crate::apimachinery::value::Value;
use crate::storage;
use std::fmt;

/// A response other than success, or one that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .message)]
pub(crate) struct Failure {
    /// HTTP status code; 0 if the response could not be read.
    pub code: u16,
    pub message: String,
    reasons: Vec<String>,
}

/// A read that failed.
impl From<storage::Error> for Failure {
    fn from(e: storage::Error) -> Self {
        // Debug format: these messages go to the log only.
        Self::unreadable(format!("{e:?}"))
    }
}

impl Failure {
    /// A response that cannot be read, or a read that failed.
    pub(crate) fn unreadable(message: impl fmt::Display) -> Self {
        Self {
            code: 0,
            message: message.to_string(),
            reasons: Vec::new(),
        }
    }

    /// The verb is not supported; not sent.
    pub(crate) fn unsupported() -> Self {
        Self {
            code: 405,
            ..Self::unreadable("the server does not allow this method on the requested resource")
        }
    }

    /// The failure that a Status describes.
    pub(super) fn of(code: u16, status: &Value) -> Self {
        let causes = status.at(&["details", "causes"]).items().iter();
        // Upstream's `HasStatusCause` looks at the causes: a create in a terminating namespace has the reason
        // Forbidden and the cause NamespaceTerminating.
        let reasons = [status].into_iter().chain(causes).map(|v| v.str_at(&["reason"]));
        Self {
            code,
            message: status.str_at(&["message"]).to_owned(),
            reasons: reasons.map(str::to_owned).collect(),
        }
    }

    /// Whether the Status or one of its causes has this reason.
    pub(crate) fn has_reason(&self, reason: &str) -> bool {
        self.reasons.iter().any(|r| r == reason)
    }
}
