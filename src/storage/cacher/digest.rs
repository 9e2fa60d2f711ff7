//! [`Digest`]: a hash over the keys and revisions of a resource. Cache and store agree if their digests are
//! equal.

use super::Snapshot;
use std::ops::Bound;

/// A digest of keys and revisions in key order: 64-bit FNV-1a, as in upstream's
/// `pkg/storage/cacher/consistency/checker.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    /// Number of objects added.
    pub objects: u64,
    sum: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            objects: 0,
            // The offset basis of FNV-1a.
            sum: 0xcbf2_9ce4_8422_2325,
        }
    }
}

impl Digest {
    /// Adds an object. Objects must be added in key order.
    pub(crate) fn add(&mut self, key: &str, revision: u64) {
        self.objects += 1;
        // The zero byte separates the key from the revision.
        for byte in key.bytes().chain([0]).chain(revision.to_le_bytes()) {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Computes the digest of a cached state.
    pub(crate) fn of(state: &Snapshot) -> Self {
        let mut digest = Self::default();
        for e in state.scan("", Bound::Unbounded) {
            digest.add(&e.key, e.revision.0);
        }
        digest
    }
}
