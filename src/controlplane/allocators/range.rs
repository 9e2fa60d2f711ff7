//! Random allocator over `0..size`. Dynamic allocations come from the upper band first, which keeps the lower
//! band free for numbers that users choose (upstream's `pkg/registry/core/service/allocator/bitmap.go`).
//!
//! Start at [`RangeAllocator::allocate_next`].

use std::collections::{BTreeSet, HashMap};

use crate::sync::Mutex;

/// The numbers `0..size`, each free or owned. Sparse: only owned numbers take memory.
#[derive(Debug)]
pub(crate) struct RangeAllocator {
    size: u64,
    offset: u64,
    allocated: Mutex<HashMap<u64, Box<str>>>,
}

/// Why a number could not be allocated.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum AllocationError {
    /// The number is owned, or all numbers are.
    AlreadyAllocated,
    /// The number is outside the range.
    OutOfRange,
}

impl RangeAllocator {
    /// An empty allocator of `0..size`; `allocate_next` prefers numbers from `offset` up.
    pub(crate) fn new(size: u64, offset: u64) -> Self {
        Self {
            size,
            offset: offset.min(size),
            allocated: Mutex::new(HashMap::new()),
        }
    }

    /// The size of the range.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Allocates `n`.
    ///
    /// # Errors
    /// [`AllocationError`], even if `owner` holds the number already.
    pub(crate) fn allocate(&self, n: u64, owner: &str) -> Result<(), AllocationError> {
        if n >= self.size {
            return Err(AllocationError::OutOfRange);
        }
        let mut allocated = self.lock();
        if allocated.contains_key(&n) {
            return Err(AllocationError::AlreadyAllocated);
        }
        allocated.insert(n, owner.into());
        Ok(())
    }

    /// Allocates a free number; `random` selects where the scan of each band starts.
    ///
    /// # Errors
    /// [`AllocationError::AlreadyAllocated`] if the range is exhausted.
    pub(crate) fn allocate_next(&self, owner: &str, random: u64) -> Result<u64, AllocationError> {
        // Held from the search to the insertion, or two Services could find the same number.
        let mut allocated = self.lock();
        if allocated.len() as u64 >= self.size {
            return Err(AllocationError::AlreadyAllocated);
        }
        for (start, end) in [(self.offset, self.size), (0, self.offset)] {
            let len = end - start;
            if len == 0 {
                continue;
            }
            // Pigeonhole: `allocated` owned numbers leave a free one among any `allocated + 1`, unless the
            // band is full.
            let tries = len.min(allocated.len() as u64 + 1);
            // The modulo bias does not matter: this only spreads where scans start.
            let first = random % len;
            if let Some(n) = (0..tries)
                .map(|i| start + (first + i) % len)
                .find(|n| !allocated.contains_key(n))
            {
                allocated.insert(n, owner.into());
                return Ok(n);
            }
        }
        Err(AllocationError::AlreadyAllocated)
    }

    /// Frees all numbers but these, and marks these as owned: by nobody in particular unless an owner is
    /// known.
    pub(crate) fn adopt(&self, numbers: &BTreeSet<u64>) {
        let mut allocated = self.lock();
        allocated.retain(|n, _| numbers.contains(n));
        for n in numbers {
            // The empty owner matches no Service, so that only a later record frees the number.
            allocated.entry(*n).or_default();
        }
    }

    /// Releases a number if `owner` holds it.
    pub(crate) fn release(&self, n: u64, owner: &str) {
        let mut allocated = self.lock();
        // Writes of one Service may overlap: a late release must not free a number that another Service got
        // since.
        if allocated.get(&n).is_some_and(|o| **o == *owner) {
            allocated.remove(&n);
        }
    }

    /// Whether the number is owned.
    pub(crate) fn is_allocated(&self, n: u64) -> bool {
        self.lock().contains_key(&n)
    }

    /// The count of owned numbers.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, HashMap<u64, Box<str>>> {
        self.allocated.lock()
    }
}

/// Start of upstream's dynamic band: `clamp(size / divisor, 16, most)`, and 0 for ranges of up to 16 numbers.
pub(crate) fn band_offset(size: u64, divisor: u64, most: u64) -> u64 {
    if size <= 16 {
        0
    } else {
        (size / divisor).clamp(16, most).min(size)
    }
}

/// 64 random bits, for [`RangeAllocator::allocate_next`].
pub(crate) fn random() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // A v4 UUID has fixed version and variant bits; folding the halves randomizes them.
    high ^ low.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_upper_band_is_allocated_first() {
        let b = RangeAllocator::new(256, 16);
        for _ in 0..240 {
            assert!(b.allocate_next("o", random()).unwrap() >= 16);
        }
        assert!(b.allocate_next("o", random()).unwrap() < 16);
    }

    #[test]
    fn band_offsets_match_upstream() {
        assert_eq!(band_offset(2768, 32, 128), 86);
        assert_eq!(band_offset(254, 16, 256), 16);
        assert_eq!(band_offset(65534, 16, 256), 256);
        assert_eq!(band_offset(14, 16, 256), 0);
    }

    #[test]
    fn only_the_owner_can_release() {
        let b = RangeAllocator::new(4, 0);
        b.allocate(1, "a").unwrap();
        b.release(1, "b");
        assert_eq!(b.allocate(1, "b"), Err(AllocationError::AlreadyAllocated));
        b.release(1, "a");
        assert_eq!(b.allocate(1, "b"), Ok(()));
        assert_eq!(b.allocate(4, "b"), Err(AllocationError::OutOfRange));
    }

    proptest! {
        #[test]
        fn allocations_are_unique_until_the_range_is_exhausted(
            size in 1u64..200, offset in 0u64..40, seeds in proptest::collection::vec(any::<u64>(), 200)
        ) {
            let b = RangeAllocator::new(size, offset);
            let mut seen = HashSet::new();
            for s in &seeds {
                match b.allocate_next("o", *s) {
                    Ok(n) => prop_assert!(n < size && seen.insert(n)),
                    Err(_) => prop_assert_eq!(seen.len() as u64, size),
                }
            }
            for n in seen {
                b.release(n, "o");
            }
            prop_assert_eq!(b.allocated(), 0);
        }
    }
}
