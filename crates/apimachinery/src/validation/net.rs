//! Validation of IP addresses, CIDRs, ports and percentages.
//!
//! Upstream has legacy and strict checks of addresses (`pkg/util/validation/ip.go`); each field keeps the one
//! it started with.

use super::{out_of_range, pattern_error};
use std::net::IpAddr;

/// Parses an IP address like upstream's legacy checks, which accept leading zeros in IPv4 octets (read as
/// decimal).
pub fn parse_ip(s: &str) -> Option<IpAddr> {
    if let Ok(ip) = s.parse::<IpAddr>() {
        return Some(ip);
    }
    // Only a zero-padded IPv4 address (bare, or at the end of an IPv6 address) can still be valid.
    let (head, v4) = match s.rfind(':') {
        Some(i) => s.split_at(i + 1),
        None => ("", s),
    };
    if v4.split('.').count() != 4 {
        return None;
    }
    let octets: Option<Vec<String>> = v4
        .split('.')
        // A part of zeros only is one zero; trimming would leave nothing.
        .map(|o| match o.trim_start_matches('0') {
            "" if !o.is_empty() => Some("0".to_owned()),
            // Longer octets cannot be below 256, and the length bounds the strings built here.
            t if !t.is_empty() && t.len() <= 3 && t.bytes().all(|c| c.is_ascii_digit()) => Some(t.to_owned()),
            _ => None,
        })
        .collect();
    format!("{head}{}", octets?.join(".")).parse().ok()
}

/// Validates an IP address of either family with the legacy rules.
pub fn ip(s: &str) -> Vec<String> {
    if parse_ip(s).is_some() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

/// Validates an IP address with the strict rules of newer fields: no form that other parsers interpret
/// differently.
pub fn ip_strict(s: &str) -> Vec<String> {
    // The standard parser rejects leading zeros, the legacy one accepts them.
    match (s.parse::<IpAddr>(), parse_ip(s)) {
        (_, None) => ip(s),
        (Err(_), Some(_)) => vec!["must not have leading 0s".to_owned()],
        // Other parsers read `::ffff:1.2.3.4` as IPv4, so policies that compare text could be bypassed.
        (Ok(IpAddr::V6(v6)), _) if v6.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        _ => Vec::new(),
    }
}

/// Parses `address/bits` with the legacy rules; host bits may be set.
pub fn parse_cidr(s: &str) -> Option<(IpAddr, u8)> {
    let (addr, bits) = s.split_once('/')?;
    let addr = parse_ip(addr)?;
    // `parse` alone would accept a plus sign.
    let n: u8 = if bits.bytes().all(|c| c.is_ascii_digit()) {
        bits.parse().ok()?
    } else {
        return None;
    };
    (n <= if addr.is_ipv4() { 32 } else { 128 }).then_some((addr, n))
}

/// Validates a CIDR with the legacy rules.
pub fn cidr(s: &str) -> Vec<String> {
    if parse_cidr(s).is_some() {
        return Vec::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

/// Validates a CIDR with the strict rules, which apply to newer fields and to new values of older ones. Returns the
/// first error only.
pub fn cidr_strict(s: &str) -> Vec<String> {
    let (Some((addr, bits)), Some((text, digits))) = (parse_cidr(s), s.split_once('/')) else {
        return cidr(s);
    };
    // Rust's parser is strict about leading zeros, the legacy one is not; a difference means that there are some.
    if text.parse::<IpAddr>().is_err() || (digits.len() > 1 && digits.starts_with('0')) {
        return vec!["must not have leading 0s in IP or prefix length".to_owned()];
    }
    if matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return vec!["must not have an IPv4-mapped IPv6 address".to_owned()];
    }
    let host_bits = match addr {
        // Shifting by the full width leaves no host bits; `checked_shl` reports that as `None`.
        IpAddr::V4(a) => u32::from(a).checked_shl(bits.into()).unwrap_or(0) != 0,
        IpAddr::V6(a) => u128::from(a).checked_shl(bits.into()).unwrap_or(0) != 0,
    };
    if host_bits {
        return vec!["must not have bits set beyond the prefix length".to_owned()];
    }
    Vec::new()
}

/// Validates a port number.
pub fn port(n: i64) -> Vec<String> {
    in_range(n, 1, 65535)
}

/// Validates `low <= n <= high`.
pub fn in_range(n: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&n) {
        Vec::new()
    } else {
        vec![out_of_range(low, high)]
    }
}

/// Validates a port name (an IANA service name).
pub fn port_name(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    // IANA limits service names to 15 characters (RFC 6335).
    if s.len() > 15 {
        out.push(super::too_long(15));
    }
    if s.is_empty()
        || !s
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
    {
        out.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !s.bytes().any(|c| c.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".to_owned());
    }
    if s.contains("--") {
        out.push("must not contain consecutive hyphens".to_owned());
    }
    if s.starts_with('-') || s.ends_with('-') {
        out.push("must not begin or end with a hyphen".to_owned());
    }
    out
}

/// Validates a percentage such as `10%`.
pub fn percent(s: &str) -> Vec<String> {
    if parse_percent(s).is_some() {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// Parses the number before `%`, saturating at `i64::MAX`.
pub fn parse_percent(s: &str) -> Option<i64> {
    let digits = s.strip_suffix('%')?;
    // Saturates instead of failing, since upstream validates form and range apart.
    (!digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit())).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Checks an address in canonical form, as newer API fields require.
pub fn canonical_ip(text: &str) -> Vec<String> {
    let messages = ip_strict(text);
    match parse_ip(text) {
        // Only an address that is valid in all other respects is compared with its canonical form.
        Some(ip) if messages.is_empty() && ip.to_string() != text => {
            vec![format!("must be in canonical form (\"{ip}\")")]
        }
        _ => messages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_parsing_accepts_leading_zeros_in_ipv4() {
        assert_eq!(parse_ip("010.0.0.01"), "10.0.0.1".parse().ok());
        assert_eq!(parse_ip("::ffff:1.2.3.04"), "::ffff:1.2.3.4".parse().ok());
        for bad in ["", "1.2.3", "1.2.3.256", "a", "1.2.3.4.5", "1..2.3", ":1.2.3.04"] {
            assert_eq!(parse_ip(bad), None, "{bad}");
        }
        assert_eq!(ip_strict("192.0.2.01"), ["must not have leading 0s"]);
        assert_eq!(ip_strict("::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
    }

    #[test]
    fn cidr_prefix_length_is_bounded_by_the_address_family() {
        assert!(parse_cidr("10.0.0.1/32").is_some() && parse_cidr("::/128").is_some());
        for bad in ["10.0.0.0/33", "10.0.0.0", "10.0.0.0/", "10.0.0.0/+1", "::/129"] {
            assert!(parse_cidr(bad).is_none(), "{bad}");
        }
        assert_eq!(
            cidr_strict("10.0.0.1/8"),
            ["must not have bits set beyond the prefix length"]
        );
        let leading = ["must not have leading 0s in IP or prefix length"];
        assert_eq!(cidr_strict("fe80::1/08"), leading);
        assert_eq!(cidr_strict("::ffff:1.2.3.04/104"), leading);
        assert!(
            cidr_strict("10.0.0.0/8").is_empty()
                && cidr_strict("0.0.0.0/0").is_empty()
                && cidr_strict("::1/128").is_empty()
        );
    }

    #[test]
    fn port_names_report_all_errors() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("-").len(), 2);
        assert_eq!(port_name("1--2").len(), 2);
        assert_eq!(port(0), ["must be between 1 and 65535, inclusive"]);
        assert!(!percent("%").is_empty() && !percent("+1%").is_empty());
    }
}
