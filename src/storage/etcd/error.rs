//! Errors of a cluster: [`ConnectError`] at start, [`Failure`] of a call, and its conversion to storage
//! errors.

use crate::storage::Error;
use std::fmt;
use std::time::Duration;

/// Why a cluster cannot be used.
#[derive(Debug)]
pub enum ConnectError {
    /// The flags contain no usable address.
    Address(String),
    /// No member has answered.
    Unreachable {
        /// The time allowed.
        within: Duration,
        /// The failure of each member.
        why: String,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) => f.write_str(why),
            Self::Unreachable { within, why } => write!(f, "no answer from etcd within {within:?}: {why}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error from the member or from the transport.
    Client(etcd_client::Error),
    /// No answer in time.
    TimedOut,
}

/// gRPC status codes.
const CANCELLED: i32 = 1;
const UNKNOWN: i32 = 2;
const DEADLINE_EXCEEDED: i32 = 4;
const NOT_FOUND: i32 = 5;
const OUT_OF_RANGE: i32 = 11;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

impl From<etcd_client::Error> for Failure {
    fn from(e: etcd_client::Error) -> Self {
        Self::Client(e)
    }
}

impl Failure {
    fn status(&self) -> Option<(i32, &str)> {
        match self {
            Self::Client(etcd_client::Error::GRpcStatus(status)) => Some((status.code() as i32, status.message())),
            _ => None,
        }
    }

    /// Appends the causes below the gRPC error, such as a refused connection or an untrusted certificate.
    fn write_causes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Client(e) = self else { return Ok(()) };
        let mut cause: Option<&dyn std::error::Error> = match e {
            etcd_client::Error::GRpcStatus(status) => std::error::Error::source(status),
            etcd_client::Error::TransportError(e) => std::error::Error::source(e),
            _ => None,
        };
        let mut written = match e {
            etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
            other => other.to_string(),
        };
        // Each layer of tonic and hyper wraps the one below; the innermost cause is the one an operator can
        // act on.
        while let Some(e) = cause {
            let text = e.to_string();
            // Layers repeat each other's messages.
            if text != "transport error" && !written.contains(&text) {
                write!(f, ": {text}")?;
                written += &text;
            }
            cause = e.source();
        }
        Ok(())
    }

    /// True for configuration errors (address, certificate, key), where a retry is pointless.
    pub(crate) fn is_permanent(&self) -> bool {
        // Connections are established lazily and then fail with a gRPC status, so a transport error here is
        // permanent.
        matches!(
            self,
            Self::Client(
                etcd_client::Error::TransportError(_)
                    | etcd_client::Error::InvalidArgs(_)
                    | etcd_client::Error::InvalidUri(_)
                    | etcd_client::Error::InvalidMetadataValue(_)
            )
        )
    }

    /// True if another member, or the same one a little later, may answer.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::Client(etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_)) => true,
            Self::Client(_) => match self.status() {
                Some((UNAVAILABLE | DEADLINE_EXCEEDED | CANCELLED, _)) => true,
                // These codes also stand for failures below gRPC; errors from etcd itself have its prefix.
                Some((UNKNOWN | INTERNAL, text)) => !text.starts_with("etcdserver: "),
                _ => false,
            },
        }
    }

    /// The requested revision has been compacted.
    pub(crate) fn is_compacted(&self) -> bool {
        // etcd uses OUT_OF_RANGE for both kinds of revision errors; only the message tells them apart.
        matches!(self.status(), Some((OUT_OF_RANGE, text)) if text.contains("has been compacted"))
    }

    /// The requested revision does not exist yet.
    pub(crate) fn is_future(&self) -> bool {
        matches!(self.status(), Some((OUT_OF_RANGE, text)) if text.contains("future revision"))
    }

    /// The lease has expired.
    pub(crate) fn is_lease_lost(&self) -> bool {
        matches!(self.status(), Some((NOT_FOUND, text)) if text.contains("lease not found"))
    }

    /// The database has reached its quota.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self.status(), Some((_, text)) if text.contains("database space exceeded"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.status()) {
            // etcd's own messages are passed on unchanged, as upstream does.
            (_, Some((_, text))) if text.starts_with("etcdserver: ") => f.write_str(text),
            (_, Some((code, text))) => {
                let name = match code {
                    CANCELLED => "Canceled",
                    UNKNOWN => "Unknown",
                    DEADLINE_EXCEEDED => "DeadlineExceeded",
                    8 => "ResourceExhausted",
                    INTERNAL => "Internal",
                    UNAVAILABLE => "Unavailable",
                    7 => "PermissionDenied",
                    16 => "Unauthenticated",
                    _ => "Unknown",
                };
                write!(f, "rpc error: code = {name} desc = {text}")?;
                self.write_causes(f)
            }
            (Self::Client(e), None) => {
                write!(f, "{e}")?;
                self.write_causes(f)
            }
            // As etcd itself words a timeout, so that callers and clients need to know one message only.
            (Self::TimedOut, None) => f.write_str("etcdserver: request timed out"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(e: Failure) -> Self {
        let text = e.to_string();
        // The limits of the server and of the client library.
        if text.contains("request is too large") || text.contains("trying to send message larger than max") {
            return Self::TooLarge(text);
        }
        Self::Failed(text)
    }
}
