//! Refuses backends at the address this gateway itself serves on: each request to one would loop.

use super::Outbound;
use crate::proxy::tcp::{DIAL_TIMEOUT, DialError};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use tokio::time::Instant;

/// Where this gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnAddress {
    /// The listen address; an unspecified IP stands for all addresses of this machine.
    pub bound: SocketAddr,
    /// The address advertised to others.
    pub advertised: IpAddr,
}

impl OwnAddress {
    /// Whether a connection to `address` would end at this gateway.
    pub(crate) fn is(&self, address: SocketAddr) -> bool {
        // The port first: it needs no look at the machine's addresses.
        if address.port() != self.bound.port() {
            return false;
        }
        let (ip, bound) = (address.ip().to_canonical(), self.bound.ip().to_canonical());
        // The kernel connects an unspecified address to this machine.
        if ip == bound || ip == self.advertised.to_canonical() || ip.is_unspecified() {
            return true;
        }
        bound.is_unspecified() && (ip.is_loopback() || is_of_this_machine(ip))
    }
}

/// Only local addresses can be bound. Binding UDP sends nothing.
fn is_of_this_machine(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The error for an address of this gateway.
pub(super) fn refused(own: SocketAddr) -> DialError {
    DialError(format!("dial tcp {own}: this is the gateway itself"))
}

impl Outbound {
    /// Refuses connections to this gateway itself.
    #[must_use]
    pub(crate) fn refusing(mut self, own: OwnAddress) -> Self {
        self.own = Some(own);
        self
    }

    /// Whether a connection to `address` would end at this gateway.
    pub(super) fn is_own(&self, address: SocketAddr) -> bool {
        self.own.is_some_and(|own| own.is(address))
    }

    /// The address of `authority` that is this gateway's own, if any. `None` also if the lookup fails.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn find_own_address(&self, authority: &str) -> Option<SocketAddr> {
        self.own?;
        let found = self.addresses(authority, Instant::now() + DIAL_TIMEOUT).await;
        found.ok()?.into_iter().find(|a| self.is_own(*a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(bound: &str) -> OwnAddress {
        OwnAddress {
            bound: bound.parse().unwrap(),
            advertised: "192.0.2.7".parse().unwrap(),
        }
    }

    #[test]
    fn every_local_address_with_the_bound_port_is_recognized() {
        for bound in ["0.0.0.0:6443", "[::]:6443"] {
            for same in [
                "127.0.0.1:6443",
                "127.1.2.3:6443",
                "[::1]:6443",
                "[::ffff:127.0.0.1]:6443",
                "0.0.0.0:6443",
                "[::]:6443",
                "192.0.2.7:6443",
            ] {
                assert!(own(bound).is(same.parse().unwrap()), "{same}");
            }
            for other in ["127.0.0.1:6444", "192.0.2.8:6443", "192.0.2.7:443"] {
                assert!(!own(bound).is(other.parse().unwrap()), "{other}");
            }
        }
        let one = own("127.0.0.1:6443");
        assert!(one.is("127.0.0.1:6443".parse().unwrap()) && one.is("0.0.0.0:6443".parse().unwrap()));
        assert!(
            !one.is("127.0.0.2:6443".parse().unwrap()),
            "another process may listen there"
        );
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_gateway_is_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = elsewhere.local_addr().unwrap();
        let outbound = Outbound::direct()
            .refusing(own(&here.to_string()))
            .with_static_names("me.example:443", &[there, here])
            .with_static_names("other.example:443", &[there]);
        for authority in [
            "me.example:443",
            &here.to_string(),
            &format!("localhost:{}", here.port()),
        ] {
            assert_eq!(outbound.find_own_address(authority).await, Some(here), "{authority}");
            for straight in [false, true] {
                let refused = match straight {
                    true => outbound.connect_directly(authority, 0).await,
                    false => outbound.connect(authority, 0).await,
                };
                let why = refused.err().unwrap().0;
                assert_eq!(why, format!("dial tcp {here}: this is the gateway itself"));
            }
        }
        assert_eq!(outbound.find_own_address("other.example:443").await, None);
        outbound.connect("other.example:443", 0).await.unwrap();
    }
}
