//! [`shrink`]: returns the memory of a map that a burst has filled.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Capacity below which a map is left alone.
const SMALL: usize = 128;

/// Reduces the capacity of a map that is mostly empty. To be called after removals; takes constant time on
/// average, since a quarter of the capacity must be removed between two reductions.
pub(crate) fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > SMALL && map.len() < map.capacity() / 4 {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_burst_is_returned() {
        let mut map: HashMap<usize, usize> = (0..10_000).map(|n| (n, n)).collect();
        for n in 0..9_990 {
            map.remove(&n);
            shrink(&mut map);
        }
        assert!(map.capacity() <= SMALL, "{}", map.capacity());
        assert_eq!(map.len(), 10);
    }
}
