//! [`Transform`]: the conversion between an object's bytes and its stored bytes, as upstream's
//! `value.Transformer` (`pkg/storage/value/transformer.go`). [`Plain`] is the identity; encryption at rest is
//! in [`super::encryption`].

use super::kms_error::{KmsError, SourceError};
use crate::apimachinery::codec::protobuf::WireError;
use bytes::Bytes;
use std::sync::Arc;

/// The result of reading a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The object's plain bytes.
    pub bytes: Bytes,
    /// True if writing the object now would produce other bytes, because another key or provider is
    /// configured.
    pub stale: bool,
}

/// Why a value cannot be converted. The message follows `Internal error occurred: ` in the response; it is
/// upstream's where upstream has one.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    /// The value is encrypted and no encryption is configured.
    #[error("identity transformer tried to read encrypted data")]
    Encrypted,
    /// No configured provider has the value's prefix.
    #[error("no matching prefix found")]
    UnknownPrefix,
    /// The provider, named here, has no key of the value's name.
    #[error("no matching key was found for the provided {0} transformer")]
    UnknownKey(&'static str),
    /// No provider of any resource could decrypt the value.
    #[error("no provider could decrypt it")]
    UnknownProvider,
    /// The value is cut off.
    #[error("the stored data was shorter than the required size")]
    TooShort,
    /// The value was not encrypted with this key, or was changed. The message depends on the scheme.
    #[error("{0}")]
    Rejected(&'static str),
    /// The configured key cannot be used.
    #[error("{0}")]
    Key(&'static str),
    /// The object could not be encrypted.
    #[error("the object cannot be encrypted")]
    Encrypt,
    /// The system's random number generator failed.
    #[error("the system's random number generator failed")]
    NoRandomNumbers,
    /// The envelope of a KMS value is not valid protobuf.
    #[error("{0}")]
    Envelope(WireError),
    /// The envelope of a KMS value has no data.
    #[error("encrypted data is nil or empty after unmarshal")]
    NoData,
    /// The envelope of a KMS value names an unknown kind of key.
    #[error("invalid encryptedDEKSourceType {0}")]
    KeyKind(u64),
    /// The envelope of a KMS value breaks a limit.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The plugin could not decrypt the value's key.
    #[error("failed to decrypt DEK, error: {0}")]
    DataKey(#[source] KmsError),
    /// The plugin has no key to encrypt with.
    #[error(transparent)]
    Kms(#[from] KmsError),
}

impl TransformError {
    /// The gRPC status code, if a call to a plugin failed.
    pub fn grpc_code(&self) -> Option<&str> {
        match self {
            Self::DataKey(error) | Self::Kms(error) => error.code(),
            _ => None,
        }
    }
}

/// A two-way conversion. `key` is the object's full storage key; encryption authenticates it.
pub trait Transform: Send + Sync + 'static {
    /// Converts stored bytes to the object's bytes.
    ///
    /// # Errors
    /// [`TransformError`]
    fn open(&self, key: &str, stored: Bytes) -> Result<Opened, TransformError>;

    /// Converts the object's bytes to the bytes to store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, TransformError>;
}

/// Prefix of every encrypted value.
pub(crate) const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The identity transform. It refuses encrypted values instead of passing ciphertext on as an object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain;

impl Plain {
    /// Returns a shared instance.
    pub(crate) fn shared() -> Arc<dyn Transform> {
        Arc::new(Self)
    }
}

impl Transform for Plain {
    fn open(&self, _key: &str, stored: Bytes) -> Result<Opened, TransformError> {
        if stored.starts_with(ENCRYPTED) {
            return Err(TransformError::Encrypted);
        }
        Ok(Opened {
            bytes: stored,
            stale: false,
        })
    }

    fn seal(&self, _key: &str, object: Bytes) -> Result<Bytes, TransformError> {
        Ok(object)
    }
}
