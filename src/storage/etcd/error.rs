//! What can go wrong with a cluster.

use crate::storage::Error;
use std::fmt;
use std::time::Duration;

/// Why a store on etcd cannot be used.
#[derive(Debug)]
pub enum ConnectError {
    /// The flags name no usable address.
    Address(String),
    /// Nobody has answered.
    Unreachable {
        /// For so long.
        within: Duration,
        /// Who was asked, and what stood in the way, each.
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

/// Why a call has failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A member has answered so, or the way to it has.
    Refused(etcd_client::Error),
    /// No answer in time.
    TimedOut,
}

/// gRPC's numbers.
const CANCELLED: i32 = 1;
const UNKNOWN: i32 = 2;
const DEADLINE_EXCEEDED: i32 = 4;
const NOT_FOUND: i32 = 5;
const OUT_OF_RANGE: i32 = 11;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

impl From<etcd_client::Error> for Failure {
    fn from(e: etcd_client::Error) -> Self {
        Self::Refused(e)
    }
}

impl Failure {
    fn status(&self) -> Option<(i32, &str)> {
        match self {
            Self::Refused(etcd_client::Error::GRpcStatus(status)) => Some((status.code() as i32, status.message())),
            _ => None,
        }
    }

    /// What lies below: the connection was refused, a certificate not believed.
    fn write_causes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Refused(e) = self else { return Ok(()) };
        let mut cause: Option<&dyn std::error::Error> = match e {
            etcd_client::Error::GRpcStatus(status) => std::error::Error::source(status),
            etcd_client::Error::TransportError(e) => std::error::Error::source(e),
            _ => None,
        };
        let mut said = match e {
            etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
            other => other.to_string(),
        };
        while let Some(e) = cause {
            let text = e.to_string();
            // Layers like to repeat what others say.
            if text != "transport error" && !said.contains(&text) {
                write!(f, ": {text}")?;
                said += &text;
            }
            cause = e.source();
        }
        Ok(())
    }

    /// No address, certificate or key that could be tried again.
    pub fn is_hopeless(&self) -> bool {
        // Connections are made when they are first used, and fail with a status then.
        matches!(
            self,
            Self::Refused(
                etcd_client::Error::TransportError(_)
                    | etcd_client::Error::InvalidArgs(_)
                    | etcd_client::Error::InvalidUri(_)
                    | etcd_client::Error::InvalidMetadataValue(_)
            )
        )
    }

    /// Another member, or the same one a little later, may answer.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::Refused(etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_)) => true,
            Self::Refused(_) => match self.status() {
                Some((UNAVAILABLE | DEADLINE_EXCEEDED | CANCELLED, _)) => true,
                // What breaks below gRPC.
                Some((UNKNOWN | INTERNAL, text)) => !text.starts_with("etcdserver: "),
                _ => false,
            },
        }
    }

    /// The revision asked for is no longer kept.
    pub fn is_compacted(&self) -> bool {
        matches!(self.status(), Some((OUT_OF_RANGE, text)) if text.contains("has been compacted"))
    }

    /// The revision asked for is yet to come.
    pub fn is_future(&self) -> bool {
        matches!(self.status(), Some((OUT_OF_RANGE, text)) if text.contains("future revision"))
    }

    /// The lease has ended.
    pub fn is_lease_lost(&self) -> bool {
        matches!(self.status(), Some((NOT_FOUND, text)) if text.contains("lease not found"))
    }

    /// The database has reached its quota.
    pub fn is_no_space(&self) -> bool {
        matches!(self.status(), Some((_, text)) if text.contains("database space exceeded"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.status()) {
            // etcd's own texts, as clients know them from upstream.
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
            (Self::Refused(e), None) => {
                write!(f, "{e}")?;
                self.write_causes(f)
            }
            (Self::TimedOut, None) => f.write_str("etcdserver: request timed out"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(e: Failure) -> Self {
        let text = e.to_string();
        // The server's own bound, and the client's.
        if text.contains("request is too large") || text.contains("trying to send message larger than max") {
            return Self::TooLarge(text);
        }
        Self::Failed(text)
    }
}
