//! Why a document of a backend is not collected: [`Rejected`] for its content, [`CollectError`] for all on
//! the way.

use super::limits::{MAX_LEVELS, MAX_NAME_LENGTH};
use crate::aggregator::own_requests::FetchError;
use crate::aggregator::transports::TransportError;

/// Why the content of a document is not used.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    #[error("the document is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the document nests deeper than {max} levels", max = MAX_LEVELS)]
    TooDeep,
    /// More values, or more members of one object, than allowed; the message states which.
    #[error("the document has more than {most} {what}")]
    TooMany { most: usize, what: &'static str },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A list of a discovery document.
    #[error("discovery is refused: {at} has {found} {what}, at most {most} are taken")]
    Discovery {
        at: String,
        found: usize,
        what: &'static str,
        most: usize,
    },
    /// A name in a discovery document.
    #[error("discovery is refused: {what} has a name of {bytes} bytes, at most {max} are taken", max = MAX_NAME_LENGTH)]
    LongName { what: &'static str, bytes: usize },
    /// A subresource, by its path, that cannot be of its resource.
    #[error("scope of {0} differs from its parent's")]
    Scope(String),
}

/// Why a document is not collected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("not probed yet")]
    NotProbed,
    #[error("the service is unavailable")]
    Unavailable,
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{status} on {path}")]
    Status { status: u16, path: String },
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error("the process is ending")]
    ShuttingDown,
}
