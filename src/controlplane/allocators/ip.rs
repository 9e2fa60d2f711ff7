//! Cluster IP allocator over one service CIDR (upstream's `pkg/registry/core/service/ipallocator`). Start at
//! [`IpAllocator::allocate_next`].

use super::range::{AllocationError, RangeAllocator, band_offset, random};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP family, as `spec.ipFamilies` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IpFamily {
    /// `IPv4`
    V4,
    /// `IPv6`
    V6,
}

/// A service CIDR with its allocations.
#[derive(Debug)]
pub(crate) struct IpAllocator {
    base: u128,
    family: IpFamily,
    bits: u8,
    range: RangeAllocator,
}

/// Why an address could not be allocated; [`Display`](fmt::Display) gives upstream's messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IpError {
    /// Outside the range, or its network address, or its IPv4 broadcast address.
    NotInRange,
    /// Owned by another Service.
    Taken,
    /// The range is exhausted.
    Full,
}

impl fmt::Display for IpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInRange => "the provided network does not match the current range",
            Self::Taken => "provided IP is already allocated",
            Self::Full => "range is full",
        })
    }
}

impl IpFamily {
    /// The IP family of an address.
    pub(crate) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The value in `spec.ipFamilies`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Parses a value of `spec.ipFamilies`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl IpAllocator {
    /// The range of a CIDR; `None` if it has no usable address.
    pub(crate) fn new(network: IpAddr, bits: u8) -> Option<Self> {
        let (family, width) = match network {
            IpAddr::V4(_) => (IpFamily::V4, 32u32),
            IpAddr::V6(_) => (IpFamily::V6, 128),
        };
        let host = width.checked_sub(u32::from(bits))?;
        // A shift by the full width would overflow.
        let mask = if host >= 128 { u128::MAX } else { (1u128 << host) - 1 };
        let base = number(network) & !mask;
        // The network address is never allocated, nor the IPv4 broadcast address. Like upstream, only the
        // first 2^64 addresses of larger ranges are used.
        let all = if host >= 64 { u64::MAX } else { 1u64 << host };
        let usable = all.saturating_sub(if family == IpFamily::V4 { 2 } else { 1 });
        (usable > 0).then(|| Self {
            base,
            family,
            bits,
            // The constants of upstream's `calculateRangeOffset`.
            range: RangeAllocator::new(usable, band_offset(usable, 16, 256)),
        })
    }

    /// Parses `10.0.0.0/24`.
    pub(crate) fn parse(cidr: &str) -> Option<Self> {
        let (ip, bits) = crate::apimachinery::validation::net::parse_cidr(cidr)?;
        Self::new(ip, bits)
    }

    /// The IP family of the range.
    pub(crate) fn family(&self) -> IpFamily {
        self.family
    }

    /// The first usable address, which is that of the `default/kubernetes` Service.
    pub(crate) fn first(&self) -> IpAddr {
        self.address(0)
    }

    /// The network address; dry runs use it as a placeholder.
    pub(crate) fn network(&self) -> IpAddr {
        self.ip_at(self.base)
    }

    /// Allocates `ip`.
    ///
    /// # Errors
    /// [`IpError`]
    pub(crate) fn allocate(&self, ip: IpAddr, owner: &str) -> Result<(), IpError> {
        let n = self.index(ip).ok_or(IpError::NotInRange)?;
        self.range.allocate(n, owner).map_err(|e| match e {
            AllocationError::AlreadyAllocated => IpError::Taken,
            AllocationError::OutOfRange => IpError::NotInRange,
        })
    }

    /// Allocates a free address.
    ///
    /// # Errors
    /// [`IpError::Full`]
    pub(crate) fn allocate_next(&self, owner: &str) -> Result<IpAddr, IpError> {
        self.range
            .allocate_next(owner, random())
            .map(|n| self.address(n))
            .map_err(|_| IpError::Full)
    }

    /// Releases an address if `owner` holds it.
    pub(crate) fn release(&self, ip: IpAddr, owner: &str) {
        if let Some(n) = self.index(ip) {
            self.range.release(n, owner);
        }
    }

    /// Whether the address is allocatable from this range, free or not.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        self.index(ip).is_some()
    }

    /// The count of allocated addresses.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.range.allocated()
    }

    fn index(&self, ip: IpAddr) -> Option<u64> {
        if IpFamily::of(ip) != self.family {
            return None;
        }
        // Index 0 is the address after the network address.
        let n = u64::try_from(number(ip).checked_sub(self.base)?).ok()?.checked_sub(1)?;
        (n < self.range.size()).then_some(n)
    }

    fn address(&self, n: u64) -> IpAddr {
        self.ip_at(self.base + 1 + u128::from(n))
    }

    fn ip_at(&self, n: u128) -> IpAddr {
        match self.family {
            // The conversion cannot fail: an IPv4 range ends below 2^32.
            IpFamily::V4 => IpAddr::V4(Ipv4Addr::from(u32::try_from(n).unwrap_or(u32::MAX))),
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::from(n)),
        }
    }
}

impl fmt::Display for IpAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.bits)
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_broadcast_addresses_are_not_allocatable() {
        let r = IpAllocator::parse("10.0.0.0/24").unwrap();
        assert_eq!(r.first().to_string(), "10.0.0.1");
        for bad in ["10.0.0.0", "10.0.0.255", "10.0.1.1", "::1"] {
            assert_eq!(r.allocate(bad.parse().unwrap(), "o"), Err(IpError::NotInRange), "{bad}");
        }
        assert_eq!(r.allocate("10.0.0.254".parse().unwrap(), "o"), Ok(()));
        assert_eq!(r.allocate("10.0.0.254".parse().unwrap(), "p"), Err(IpError::Taken));
        assert_eq!(r.to_string(), "10.0.0.0/24");
    }

    #[test]
    fn a_small_range_is_allocated_completely() {
        let r = IpAllocator::parse("192.168.1.8/29").unwrap();
        let mut all: Vec<IpAddr> = (0..6).map(|_| r.allocate_next("o").unwrap()).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
        assert_eq!(r.allocate_next("o"), Err(IpError::Full));
        r.release(all[0], "o");
        assert_eq!(r.allocate_next("o"), Ok(all[0]));
    }

    #[test]
    fn large_ipv6_ranges_allocate() {
        let r = IpAllocator::parse("fd00::/48").unwrap();
        let ip = r.allocate_next("o").unwrap();
        assert!(r.contains(ip) && ip != r.network());
    }
}
