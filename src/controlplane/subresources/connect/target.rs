//! Parses proxy targets, and decides which addresses may be proxied to.

use crate::apimachinery::field::quote;
use crate::apimachinery::status::{Result, Status};
use std::net::IpAddr;

/// A parsed `name`, `name:port` or `scheme:name:port` (Go's `net.SplitSchemeNamePort` in
/// `k8s.io/apimachinery/pkg/util/net`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub https: bool,
    pub name: &'a str,
    pub port: &'a str,
}

impl<'a> Target<'a> {
    /// Parses a target; `what` names the resource type in the error.
    pub(super) fn parse(id: &'a str, what: &str) -> Result<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            // Not a valid scheme, so it is rejected below.
            _ => ("?", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            return Err(Status::bad_request(format!("invalid {what} request {}", quote(id))));
        }
        Ok(Self {
            https: scheme == "https",
            name,
            port,
        })
    }
}

/// The error for an address that must not be proxied to.
pub(super) fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

/// Whether an address is global unicast in the sense of Go's `IsGlobalUnicast`: neither unspecified,
/// loopback, multicast, broadcast nor link-local. IPv4-mapped addresses are unwrapped first.
pub(super) fn may_proxy_to(ip: IpAddr) -> bool {
    let own = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
    let link = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => return may_proxy_to(IpAddr::V4(v4)),
            None => v6.segments()[0] & 0xffc0 == 0xfe80,
        },
    };
    !own && !link
}

/// Joins host and port, with brackets around an IPv6 host; an empty port is omitted.
pub(super) fn join(host: &str, port: &str) -> String {
    match (host.contains(':'), port.is_empty()) {
        (true, true) => format!("[{host}]"),
        (true, false) => format!("[{host}]:{port}"),
        (false, true) => host.to_owned(),
        (false, false) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_parse_with_optional_scheme_and_port() {
        let of = |id| Target::parse(id, "pod").map(|t| (t.https, t.name.to_owned(), t.port.to_owned()));
        assert_eq!(of("p").unwrap(), (false, "p".into(), String::new()));
        assert_eq!(of("https:p:").unwrap(), (true, "p".into(), String::new()));
        assert_eq!(of("p:http").unwrap(), (false, "p".into(), "http".into()));
        for bad in ["http:p:1:2", "ftp:p:1", ":80"] {
            assert_eq!(of(bad).unwrap_err().message, format!("invalid pod request {bad:?}"));
        }
    }

    #[test]
    fn local_addresses_are_refused() {
        let may = |s: &str| may_proxy_to(s.parse().unwrap());
        for bad in [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::ffff:127.0.0.1",
        ] {
            assert!(!may(bad), "{bad}");
        }
        assert!(may("10.0.0.1") && may("2001:db8::1") && may("192.168.1.1"));
    }
}
