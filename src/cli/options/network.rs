//! The flags for Service addresses and node ports. [`Cidr`] and the ranges are validated here; allocation is
//! left to the control plane.

use super::{UsageError, Values};
use crate::apimachinery::validation::net::parse_cidr;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

#[derive(Clone, Debug)]
pub(crate) struct NetworkOptions {
    /// `--service-cluster-ip-range`: one range, or one per address family; single-stack Services use the
    /// first.
    pub service_cidrs: Vec<Cidr>,
    /// `--service-node-port-range`.
    pub node_ports: RangeInclusive<u16>,
}

/// An address range in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    /// The network address: all host bits are zero.
    pub network: IpAddr,
    /// Length of the network prefix in bits.
    pub prefix: u8,
}

impl Cidr {
    /// The first address after the network address, which the `kubernetes` Service gets.
    pub(crate) fn first_service_address(&self) -> IpAddr {
        match self.network {
            // Cannot wrap in an accepted range, which has at least eight addresses.
            IpAddr::V4(v4) => IpAddr::from((u32::from(v4).wrapping_add(1)).to_be_bytes()),
            IpAddr::V6(v6) => IpAddr::from((u128::from(v6).wrapping_add(1)).to_be_bytes()),
        }
    }
}

/// A text is not a range in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a CIDR such as 10.0.0.0/24")]
pub(crate) struct NotACidr;

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = parse_cidr(text).ok_or(NotACidr)?;
        let network = match address {
            IpAddr::V4(v4) => {
                // A prefix of 0 shifts by all bits, which overflows a plain shift; the mask is then 0.
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::from((u32::from(v4) & mask).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::from((u128::from(v6) & mask).to_be_bytes())
            }
        };
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl NetworkOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        const CIDRS: &str = "service-cluster-ip-range";
        let parse = |text: &str| text.parse::<Cidr>().map_err(|e| UsageError::invalid(CIDRS, text, e));
        let mut service_cidrs: Vec<Cidr> = Vec::new();
        for text in values.list(CIDRS) {
            let cidr = parse(&text)?;
            let bits = if cidr.network.is_ipv4() { 32 } else { 128 };
            if cidr.prefix > bits - 3 {
                let why = "too small: it must hold at least 8 addresses";
                return Err(UsageError::invalid(CIDRS, &text, why));
            }
            service_cidrs.push(cidr);
        }
        match service_cidrs.as_slice() {
            // The flag is given empty, so the default of the table does not apply.
            [] => service_cidrs.push(parse("10.0.0.0/24")?),
            [_] => {}
            [a, b] if a.network.is_ipv4() != b.network.is_ipv4() => {}
            _ => {
                return Err(UsageError::new(format!(
                    "--{CIDRS} takes one range, or two of different families"
                )));
            }
        }
        Ok(Self {
            service_cidrs,
            node_ports: node_ports(values.text("service-node-port-range"))?,
        })
    }
}

/// Parses `a-b`, `a+n` or a single port, as upstream.
fn node_ports(text: &str) -> Result<RangeInclusive<u16>, UsageError> {
    let fail = || {
        UsageError::invalid(
            "service-node-port-range",
            text,
            "expected first-last, such as 30000-32767",
        )
    };
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| fail());
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (port(first)?, port(last)?)
    } else if let Some((first, more)) = text.split_once('+') {
        (port(first)?, port(first)?.checked_add(port(more)?).ok_or_else(fail)?)
    } else {
        (port(text)?, port(text)?)
    };
    // Port 0 means "none" in a Service.
    if first > last || first == 0 {
        return Err(fail());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_upstream_reads_them() {
        for (text, wanted) in [
            ("10.0.0.7/24", Some("10.0.0.0/24")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("010.0.0.0/8", Some("10.0.0.0/8")),
            ("fd00::1/112", Some("fd00::/112")),
            ("10.0.0.0/+24", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
        ] {
            let read = text.parse::<Cidr>().ok().map(|cidr| cidr.to_string());
            assert_eq!(read.as_deref(), wanted, "{text}");
        }
        let wrong = "10.0.0.0".parse::<Cidr>().map_err(|e| e.to_string());
        assert_eq!(wrong, Err("expected a CIDR such as 10.0.0.0/24".to_owned()));
    }
}
