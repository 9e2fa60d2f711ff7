//! [`Error`]: why a custom server does not start.

use crate::apimachinery::gvk::GroupVersion;
use std::path::PathBuf;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why an [`ApiServer`](super::ApiServer) or a [`Port`](super::Port) cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data directory cannot be made.
    #[error("cannot make {}: {source}", .path.display())]
    Directory {
        /// The directory that was to be made.
        path: PathBuf,
        /// What the system reported for it.
        source: std::io::Error,
    },
    /// The store cannot be opened: it is in use, damaged, or of another version.
    #[error(transparent)]
    Store(Cause),
    /// A group version has an invalid name or invalid priorities.
    #[error("{gv} cannot be served: {reason}")]
    Group {
        /// As it was given to the builder.
        gv: GroupVersion,
        /// The rule that it violates.
        reason: String,
    },
    /// A name of a kind or of its subresources is invalid or taken.
    #[error("the name {name:?} of {kind} cannot be used: {reason}")]
    Name {
        /// The kind that was to be served.
        kind: String,
        /// The name as it was given.
        name: String,
        /// The rule that it violates.
        reason: String,
    },
    /// The schema of a kind is invalid.
    #[error("the schema of {kind} is wrong: {reason}")]
    Schema {
        /// The kind that was to be served.
        kind: String,
        /// All violations, joined into one line.
        reason: String,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(Cause),
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(Cause),
}
