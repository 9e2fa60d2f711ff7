//! [`Transform`]: the conversion between an object's bytes and its stored bytes, as upstream's `value.Transformer`
//! (`pkg/storage/value/transformer.go`). [`Plain`] is the identity; encryption at rest is in [`super::encryption`].

use bytes::Bytes;
use std::sync::Arc;

/// The result of reading a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The object's plain bytes.
    pub bytes: Bytes,
    /// True if writing the object now would produce other bytes, because another key or provider is configured.
    pub stale: bool,
}

/// A two-way conversion. `key` is the object's full storage key; encryption authenticates it.
pub trait Transform: Send + Sync + 'static {
    /// Converts stored bytes to the object's bytes.
    ///
    /// # Errors
    /// The text that follows `Internal error occurred: ` in the response.
    fn open(&self, key: &str, stored: Bytes) -> Result<Opened, String>;

    /// Converts the object's bytes to the bytes to store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, String>;
}

/// Prefix of every encrypted value.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The identity transform. It refuses encrypted values instead of passing ciphertext on as an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Plain {
    /// Returns a shared instance.
    pub fn shared() -> Arc<dyn Transform> {
        Arc::new(Self)
    }
}

impl Transform for Plain {
    fn open(&self, _key: &str, stored: Bytes) -> Result<Opened, String> {
        if stored.starts_with(ENCRYPTED) {
            return Err("identity transformer tried to read encrypted data".to_owned());
        }
        Ok(Opened {
            bytes: stored,
            stale: false,
        })
    }

    fn seal(&self, _key: &str, object: Bytes) -> Result<Bytes, String> {
        Ok(object)
    }
}
