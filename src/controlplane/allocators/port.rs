//! Node port allocator (upstream's `pkg/registry/core/service/portallocator`). Start at
//! [`PortAllocator::allocate_next`].

use super::range::{AllocationError, RangeAllocator, band_offset, random};
use std::collections::BTreeSet;
use std::fmt;

/// The node port range with its allocations.
#[derive(Debug)]
pub(crate) struct PortAllocator {
    first: u16,
    last: u16,
    range: RangeAllocator,
}

/// Why a port could not be allocated; [`Display`](fmt::Display) gives upstream's messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PortError {
    /// Outside the range, whose inclusive bounds are given.
    NotInRange(u16, u16),
    /// Owned by another Service.
    Taken,
    /// The range is exhausted.
    Full,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInRange(a, b) => write!(
                f,
                "provided port is not in the valid range. The range of valid ports is {a}-{b}"
            ),
            Self::Taken => f.write_str("provided port is already allocated"),
            Self::Full => f.write_str("range is full"),
        }
    }
}

impl PortAllocator {
    /// The range `first..=last`, nothing allocated.
    pub(crate) fn new(first: u16, last: u16) -> Self {
        let size = u64::from(last.saturating_sub(first)) + 1;
        Self {
            first,
            last,
            // The constants of upstream's `calculateRangeOffset` for ports.
            range: RangeAllocator::new(size, band_offset(size, 32, 128)),
        }
    }

    fn index(&self, port: i64) -> Result<u64, PortError> {
        u16::try_from(port)
            .ok()
            .filter(|p| (self.first..=self.last).contains(p))
            .map(|p| u64::from(p - self.first))
            .ok_or(PortError::NotInRange(self.first, self.last))
    }

    /// Allocates `port`.
    ///
    /// # Errors
    /// [`PortError`]
    pub(crate) fn allocate(&self, port: i64, owner: &str) -> Result<(), PortError> {
        let n = self.index(port)?;
        self.range.allocate(n, owner).map_err(|e| match e {
            AllocationError::AlreadyAllocated => PortError::Taken,
            AllocationError::OutOfRange => PortError::NotInRange(self.first, self.last),
        })
    }

    /// Allocates a free port.
    ///
    /// # Errors
    /// [`PortError::Full`]
    pub(crate) fn allocate_next(&self, owner: &str) -> Result<i64, PortError> {
        let n = self.range.allocate_next(owner, random()).map_err(|_| PortError::Full)?;
        // `n` is below the number of ports.
        Ok(i64::from(self.first) + n as i64)
    }

    /// Makes the ports that are taken those of the record in the store, which other gateways change as well.
    /// Ports whose owner is known keep it.
    pub(crate) fn adopt(&self, record: &BTreeSet<u16>) {
        // A record may hold ports of a range that was configured before; those are not allocated here.
        let ports = record.iter().filter_map(|p| self.index(i64::from(*p)).ok());
        self.range.adopt(&ports.collect());
    }

    /// Releases a port if `owner` holds it.
    pub(crate) fn release(&self, port: i64, owner: &str) {
        if let Ok(n) = self.index(port) {
            self.range.release(n, owner);
        }
    }

    /// Whether the port is allocated.
    pub(crate) fn is_allocated(&self, port: i64) -> bool {
        self.index(port).is_ok_and(|n| self.range.is_allocated(n))
    }

    /// The count of allocated ports.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.range.allocated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_replaces_the_allocated_ports() {
        let r = PortAllocator::new(30000, 30003);
        r.allocate(30000, "a").unwrap();
        r.allocate(30001, "a").unwrap();
        r.adopt(&BTreeSet::from([30001, 30002, 40000]));
        assert_eq!(
            [30000, 30001, 30002, 30003].map(|p| r.is_allocated(p)),
            [false, true, true, false]
        );
        assert_eq!(r.allocate(30002, "a"), Err(PortError::Taken));
        r.release(30001, "a");
        assert!(!r.is_allocated(30001), "its owner is still known");
    }

    #[test]
    fn dynamic_ports_come_from_the_upper_band() {
        let r = PortAllocator::new(30000, 32767);
        for _ in 0..50 {
            assert!(r.allocate_next("o").unwrap() >= 30086);
        }
        assert_eq!(
            r.allocate(29999, "o").unwrap_err().to_string(),
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        );
        r.allocate(30000, "a").unwrap();
        assert_eq!(r.allocate(30000, "b"), Err(PortError::Taken));
    }
}
