//! [`Failure`]: a request of a control loop that did not succeed.

use crate::apimachinery::field::cut;
use crate::apimachinery::value::Value;
use crate::storage;
use std::fmt;

/// Bytes of a message, and causes, that are kept of a Status. An aggregated API server may answer with megabytes, once for
/// each of thousands of resources, and the failures of a namespace are kept together.
const MAX_MESSAGE: usize = 4 << 10;
const MAX_CAUSES: usize = 16;

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
        let causes = status.at(&["details", "causes"]).items().iter().take(MAX_CAUSES);
        // Upstream's `HasStatusCause` looks at the causes: a create in a terminating namespace has the reason
        // Forbidden and the cause NamespaceTerminating.
        let reasons = [status].into_iter().chain(causes).map(|v| v.str_at(&["reason"]));
        Self {
            code,
            message: cut(status.str_at(&["message"]).to_owned(), MAX_MESSAGE),
            reasons: reasons.map(|reason| cut(reason.to_owned(), MAX_MESSAGE)).collect(),
        }
    }

    /// Whether the Status or one of its causes has this reason.
    pub(crate) fn has_reason(&self, reason: &str) -> bool {
        self.reasons.iter().any(|r| r == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn large_statuses_are_truncated() {
        let long = "x".repeat(1 << 20);
        let causes: Vec<Value> = (0..1_000).map(|_| json!({"reason": (long.as_str())})).collect();
        let failure = Failure::of(
            500,
            &json!({"reason": (long.as_str()), "message": (long.as_str()), "details": {"causes": (causes)}}),
        );
        let kept = failure.message.len() + failure.reasons.iter().map(String::len).sum::<usize>();
        assert!(kept < (MAX_CAUSES + 3) * MAX_MESSAGE, "{kept} bytes");
        let small = Failure::of(409, &json!({"reason": "Conflict", "message": "changed"}));
        assert_eq!((small.code, small.message.as_str()), (409, "changed"));
        assert!(small.has_reason("Conflict"));
    }
}
