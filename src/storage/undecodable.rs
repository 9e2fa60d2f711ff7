//! [`Undecodable`]: why stored bytes cannot be served as an object.

use crate::api::decode::DecodeError;
use crate::apimachinery::codec::{json, protobuf, yaml};
use crate::apimachinery::gvk::GroupVersion;

/// Why stored bytes cannot be served as an object.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// JSON that does not parse.
    #[error(transparent)]
    Json(#[from] json::Error),
    /// YAML that does not parse.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// Their protobuf envelope is damaged.
    #[error(transparent)]
    Envelope(#[from] protobuf::OpenError),
    /// Their fields do not have the types of the kind.
    #[error(transparent)]
    Fields(#[from] DecodeError),
    /// The kind does not exist. Upstream's text.
    #[error("no kind \"{kind}\" is registered for version \"{version}\"")]
    UnknownKind {
        /// The `apiVersion`.
        version: String,
        /// The `kind`.
        kind: String,
    },
    /// They are an object of another resource.
    #[error("the stored object is a {found} of {version}, not a {kind} of {to}")]
    OtherKind {
        /// Its `apiVersion`.
        version: String,
        /// Its `kind`.
        found: String,
        /// The group and version of the resource that was read.
        to: GroupVersion,
        /// The kind of the resource that was read.
        kind: String,
    },
    /// They have no metadata.
    #[error("it has no metadata")]
    NoMetadata,
}
