//! [`Failure`]: why a webhook did not admit a write.

use crate::apimachinery::status::Status;

/// The code of a failed call in the metrics, as upstream.
pub(super) const UNAVAILABLE: u16 = 503;

/// Why a webhook did not admit a write.
pub(super) enum Failure {
    /// It denied the write.
    Denied(Status),
    /// It could not be called, or its response is unusable. The failure policy decides.
    Call {
        /// The message, worded as upstream.
        why: String,
        /// The code in the metrics.
        code: u16,
    },
    /// The write fails regardless of the failure policy.
    Internal(Status),
}

impl Failure {
    /// A call whose answer cannot be used.
    pub(crate) fn unusable(why: String) -> Self {
        Self::Call { why, code: UNAVAILABLE }
    }
}
