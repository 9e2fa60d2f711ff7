//! Names with a scheme and a port, and addresses that may be proxied to.

use crate::apimachinery::field::quote;
use crate::apimachinery::status::{Result, Status};
use std::net::IpAddr;

/// `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub https: bool,
    pub name: &'a str,
    pub port: &'a str,
}

impl<'a> Target<'a> {
    /// Reads it; `what` is the kind of the resource, for the refusal.
    pub(super) fn parse(id: &'a str, what: &str) -> Result<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
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

/// What nobody may use this server to reach.
pub(super) fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

/// Addresses of one host that are neither this machine nor its link, as Go's `IsGlobalUnicast`.
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

/// `host:port`, with brackets where the host is an IPv6 address; the host alone where there is no port.
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
    fn names_have_schemes_and_ports() {
        let of = |id| Target::parse(id, "pod").map(|t| (t.https, t.name.to_owned(), t.port.to_owned()));
        assert_eq!(of("p").unwrap(), (false, "p".into(), String::new()));
        assert_eq!(of("https:p:").unwrap(), (true, "p".into(), String::new()));
        assert_eq!(of("p:http").unwrap(), (false, "p".into(), "http".into()));
        for bad in ["http:p:1:2", "ftp:p:1", ":80"] {
            assert_eq!(of(bad).unwrap_err().message, format!("invalid pod request {bad:?}"));
        }
    }

    #[test]
    fn this_machine_and_its_link_are_out_of_reach() {
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
