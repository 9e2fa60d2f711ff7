//! Node port allocator (upstream's `pkg/registry/core/service/portallocator`). Start at [`PortRange::take_any`].

use super::band::{Band, Refused, band_offset, random};
use std::fmt;

/// The node port range with its allocations.
#[derive(Debug)]
pub struct PortRange {
    first: u16,
    last: u16,
    band: Band,
}

/// Why a port could not be allocated; [`Display`](fmt::Display) gives upstream's messages.
#[derive(Debug, PartialEq, Eq)]
pub enum PortError {
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

impl PortRange {
    /// The range `first..=last`, nothing allocated.
    pub fn new(first: u16, last: u16) -> Self {
        let size = u64::from(last.saturating_sub(first)) + 1;
        Self {
            first,
            last,
            band: Band::new(size, band_offset(size, 32, 128)),
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
    pub fn take(&self, port: i64, owner: &str) -> Result<(), PortError> {
        let n = self.index(port)?;
        self.band.take(n, owner).map_err(|e| match e {
            Refused::Taken => PortError::Taken,
            Refused::OutOfRange => PortError::NotInRange(self.first, self.last),
        })
    }

    /// Allocates a free port.
    ///
    /// # Errors
    /// [`PortError::Full`]
    pub fn take_any(&self, owner: &str) -> Result<i64, PortError> {
        let n = self.band.take_any(owner, random()).map_err(|_| PortError::Full)?;
        Ok(i64::from(self.first) + n as i64)
    }

    /// Releases a port if `owner` holds it.
    pub fn give_back(&self, port: i64, owner: &str) {
        if let Ok(n) = self.index(port) {
            self.band.give_back(n, owner);
        }
    }

    /// Whether the port is allocated.
    pub fn is_taken(&self, port: i64) -> bool {
        self.index(port).is_ok_and(|n| self.band.is_taken(n))
    }

    /// The count of allocated ports.
    pub fn taken(&self) -> usize {
        self.band.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_ports_come_from_the_upper_band() {
        let r = PortRange::new(30000, 32767);
        for _ in 0..50 {
            assert!(r.take_any("o").unwrap() >= 30086);
        }
        assert_eq!(
            r.take(29999, "o").unwrap_err().to_string(),
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        );
        r.take(30000, "a").unwrap();
        assert_eq!(r.take(30000, "b"), Err(PortError::Taken));
    }
}
