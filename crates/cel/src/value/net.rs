//! [`Net`]: an IP address or network.

use std::fmt;
use std::net::IpAddr;

/// An address, or an address and a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(IpAddr, u8),
}

impl Net {
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Cidr(ip, prefix) => write!(f, "{ip}/{prefix}"),
        }
    }
}
