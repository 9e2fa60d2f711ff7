//! A digest of which keys a resource has, at which revisions: equal for cache and store where they agree.

use super::Snapshot;
use std::ops::Bound;

/// A digest of keys and revisions, in the order of the keys (64-bit FNV-1a, as upstream's checker).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Objects in it.
    pub objects: u64,
    sum: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            objects: 0,
            sum: 0xcbf2_9ce4_8422_2325,
        }
    }
}

impl Digest {
    /// Adds an object.
    pub fn add(&mut self, key: &str, revision: u64) {
        self.objects += 1;
        for byte in key.bytes().chain([0]).chain(revision.to_le_bytes()) {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// That of a state.
    pub fn of(state: &Snapshot) -> Self {
        let mut digest = Self::default();
        for e in state.scan("", Bound::Unbounded) {
            digest.add(&e.key, e.revision.0);
        }
        digest
    }
}
