//! Errors of KMS plugins: [`KmsError`] of a plugin, [`SourceError`] of what it returns. They are shared by
//! `transform`, whose errors contain them, and `encryption`, which calls the plugins. Texts are upstream's where it has
//! them: clients, health checks and operators read them.

use std::sync::Arc;

/// Why a KMS plugin cannot be used. Cloned from the last status check into health checks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KmsError {
    /// A call failed. Formatted as Go's gRPC client does.
    #[error("rpc error: code = {code} desc = {description}")]
    Rpc {
        /// Name of the gRPC status code.
        code: String,
        /// The plugin's message, or why it was not reached.
        description: String,
    },
    /// The last status check failed.
    #[error("kmsv2 Provider {provider} is not healthy, error: {source}")]
    Unhealthy {
        /// `name` of the plugin in the configuration.
        provider: String,
        /// The result of the check.
        source: Arc<KmsError>,
    },
    /// No status check has ended yet.
    #[error("it has not answered yet")]
    NotAsked,
    /// The call of a status check failed.
    #[error("failed to perform status section of the healthz check for KMS Provider {provider}, error: {source}")]
    Status {
        /// `name` of the plugin in the configuration.
        provider: String,
        /// Why the call failed.
        source: Arc<KmsError>,
    },
    /// The plugin reports that it is not well.
    #[error("got unexpected healthz status: {0}")]
    Healthz(String),
    /// The plugin implements another version.
    #[error("expected KMSv2 API version v2, got {0}")]
    Version(String),
    /// The plugin's version changed while it was in use.
    #[error("KMSv2 API version should not change after the initial status response version {before}, got {now}")]
    VersionChanged {
        /// The version that the first status check reported.
        before: String,
        /// The version that this status check reported.
        now: String,
    },
    /// The plugin reported an unusable key id.
    #[error("got invalid KMSv2 KeyID hash {hash:?}: {source}")]
    KeyId {
        /// The id is confidential.
        hash: String,
        /// Why the id is unusable.
        source: SourceError,
    },
    /// No new seed could be encrypted.
    #[error("failed to rotate DEK uid={uid:?}: {source}")]
    Rotation {
        /// Correlates the logs of both sides.
        uid: String,
        /// Why the call failed.
        source: Arc<KmsError>,
    },
    /// The plugin has not encrypted a seed yet.
    #[error("kmsv2 Provider {0}: there is no key to encrypt with yet")]
    NoSeed(String),
    /// The plugin has not confirmed its key for too long.
    #[error(
        "encryptedDEKSource with keyID hash {hash:?} expired: the plugin has not confirmed the key for {seconds} s"
    )]
    Expired {
        /// The id is confidential.
        hash: String,
        /// How long a confirmation is good for.
        seconds: u64,
    },
    /// The plugin returned something that must not be stored.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The decrypted key has an impossible length.
    #[error("the plugin returned a key of {0} bytes")]
    KeyLength(usize),
    /// Too many requests wait for the plugin.
    #[error("too many requests are waiting for the plugin")]
    Busy,
    /// The plugin's thread has ended.
    #[error("the plugin's thread has ended")]
    Stopped,
    /// The plugin's thread or its runtime could not be started.
    #[error("kms provider {provider}: {why}")]
    Start {
        /// `name` of the plugin in the configuration.
        provider: String,
        /// The system's error.
        why: String,
    },
    /// The system's random number generator failed.
    #[error("the system's random number generator failed")]
    NoRandomNumbers,
}

impl KmsError {
    /// The gRPC status code, if a call is at the bottom of this.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Rpc { code, .. } => Some(code),
            Self::Unhealthy { source, .. } | Self::Status { source, .. } | Self::Rotation { source, .. } => {
                source.code()
            }
            _ => None,
        }
    }
}

/// Why an encrypted seed or key is rejected: the limits of upstream's `validateEncryptedObject`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Without a key id, a rotation of the plugin's key could not be noticed.
    #[error("keyID is empty")]
    NoKeyId,
    /// The key id is too long.
    #[error("keyID is {length} bytes, which exceeds the max size of {max}")]
    KeyIdLength {
        /// Bytes that the plugin returned.
        length: usize,
        /// Bytes that may be stored.
        max: usize,
    },
    /// The plugin returned no ciphertext.
    #[error("encryptedDEKSource is empty")]
    Empty,
    /// The ciphertext is too long.
    #[error("encryptedDEKSource is {length} bytes, which exceeds the max size of {max}")]
    Length {
        /// Bytes that the plugin returned.
        length: usize,
        /// Bytes that may be stored.
        max: usize,
    },
    /// The annotations are too long.
    #[error("total size of annotations is {length}, which exceeds the max size of {max}")]
    Annotations {
        /// Bytes that the plugin returned.
        length: usize,
        /// Bytes that may be stored.
        max: usize,
    },
}
