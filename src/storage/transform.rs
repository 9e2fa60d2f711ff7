//! What stands between an object and the bytes a store keeps: nothing, or encryption at rest.

use bytes::Bytes;
use std::sync::Arc;

/// Stored bytes, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The object's bytes.
    pub bytes: Bytes,
    /// Writing them again would not give what is stored: another key or another way is used today.
    pub stale: bool,
}

/// Both ways between an object's bytes and stored ones. `key` is the whole key of the object.
pub trait Transform: Send + Sync + 'static {
    /// Reads stored bytes.
    ///
    /// # Errors
    /// The text that follows `Internal error occurred: `.
    fn open(&self, key: &str, stored: Bytes) -> Result<Opened, String>;

    /// Makes what is stored.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn seal(&self, key: &str, object: Bytes) -> Result<Bytes, String>;
}

/// What every encrypted value begins with.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// No transform; refuses what some other has made, rather than taking it for an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Plain {
    /// To be shared.
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
