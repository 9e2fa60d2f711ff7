//! [`flow_hash`]: the hash of a flow's id. The controller makes from it what decides about the flow's queues.

use aws_lc_rs::digest;
use std::cell::RefCell;

/// Longer ids are not cached, which bounds the memory of a thread. Schema and user name together are rarely
/// longer.
const SHORT_ID: usize = 192;
/// Cached flows per thread.
const REMEMBERED: usize = 64;

thread_local! {
    /// Direct-mapped; a collision evicts. SHA-256 costs more than everything else in the classification, and
    /// most requests of a thread are of a few flows.
    static RECENT: RefCell<Vec<CachedFlow>> = const { RefCell::new(Vec::new()) };
}

/// A flow's id and its hash.
#[derive(Clone, Default)]
struct CachedFlow {
    id: Vec<u8>,
    hash: u64,
}

impl CachedFlow {
    fn is_of(&self, schema: &[u8], distinguisher: &[u8]) -> bool {
        let Some((name, rest)) = self.id.split_at_checked(schema.len()) else {
            return false;
        };
        // Compared without building the id: a hit must not allocate. An empty slot never matches, for lack of the
        // zero byte.
        name == schema && rest.split_first() == Some((&0, distinguisher))
    }
}

/// The hash of a flow's id, as upstream defines it. It has no key, so anybody can compute it: the controller
/// keys it before it chooses queues by it.
pub(crate) fn flow_hash(schema: &str, distinguisher: &str) -> u64 {
    let (schema, distinguisher) = (schema.as_bytes(), distinguisher.as_bytes());
    if schema.len() + 1 + distinguisher.len() > SHORT_ID {
        return sha256(&[schema, &[0], distinguisher].concat());
    }
    RECENT.with_borrow_mut(|recent| {
        if recent.is_empty() {
            recent.resize(REMEMBERED, CachedFlow::default());
        }
        // In bounds: `place` reduces modulo the number of slots.
        let known = &mut recent[place(schema, distinguisher)];
        if !known.is_of(schema, distinguisher) {
            // Reuses the evicted entry's allocation.
            known.id.clear();
            for part in [schema, &[0], distinguisher] {
                known.id.extend_from_slice(part);
            }
            known.hash = sha256(&known.id);
        }
        known.hash
    })
}

/// Where a flow is remembered. Names of users and namespaces differ at their ends.
fn place(schema: &[u8], distinguisher: &[u8]) -> usize {
    let ends = distinguisher.rchunks(8).take(2);
    let mixed = ends.fold(schema.len() as u64, |mixed, end| {
        let mut word = [0; 8];
        word[..end.len()].copy_from_slice(end);
        // 2^64 divided by the golden ratio (Fibonacci hashing): similar names spread over the slots.
        (mixed ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    // The low bits of a product depend on the low bits of its factors only.
    (mixed >> 32) as usize % REMEMBERED
}

fn sha256(id: &[u8]) -> u64 {
    let sum = digest::digest(&digest::SHA256, id);
    let first = sum.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Upstream's definition: the first eight bytes of the SHA-256 of both names, separated by a zero byte.
    fn by_definition(schema: &str, distinguisher: &str) -> u64 {
        sha256(format!("{schema}\0{distinguisher}").as_bytes())
    }

    proptest! {
        #[test]
        fn the_cached_flow_equals_the_computed_one(
            flows in proptest::collection::vec(("[ab]{0,2}", "[ab\\x00]{0,12}"), 1..200),
        ) {
            for (schema, distinguisher) in flows {
                prop_assert_eq!(flow_hash(&schema, &distinguisher), by_definition(&schema, &distinguisher));
            }
        }
    }

    #[test]
    fn ids_of_any_length_have_a_hash() {
        for length in [0, SHORT_ID - 2, SHORT_ID - 1, SHORT_ID, 10_000] {
            let name = "n".repeat(length);
            assert_eq!(flow_hash("s", &name), by_definition("s", &name), "{length}");
        }
        let longest = RECENT.with_borrow(|recent| recent.iter().map(|known| known.id.len()).max());
        assert_eq!(longest, Some(SHORT_ID), "longer ids are not remembered");
    }
}
