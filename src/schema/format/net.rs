//! Addresses and names of networks.

use super::identifiers::hex;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The parts of a URI that are asked for.
pub(super) struct RequestUri<'a> {
    pub(super) scheme: &'a str,
    pub(super) host: &'a str,
}

/// Parses an absolute URI or an absolute path, as Go's `url.ParseRequestURI`.
pub(super) fn request_uri(s: &str) -> Option<RequestUri<'_>> {
    // Control characters make Go's parser fail before anything else.
    if s.is_empty() || s.bytes().any(|b| b < b' ' || b == 0x7f) {
        return None;
    }
    if s == "*" {
        return Some(RequestUri { scheme: "", host: "" });
    }
    // A scheme ends at the first character that cannot be part of one.
    let (scheme, rest) = match s.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')) {
        Some(end) if s[end..].starts_with(':') => {
            if !s.starts_with(|c: char| c.is_ascii_alphabetic()) {
                return None;
            }
            (&s[..end], &s[end + 1..])
        }
        _ => ("", s),
    };
    let (path, _query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        // An opaque URI such as `mailto:a`; a relative path is refused.
        return (!scheme.is_empty()).then_some(RequestUri { scheme, host: "" });
    }
    // Three slashes without a scheme are a path, as in Go.
    let authority = path
        .strip_prefix("//")
        .filter(|_| !scheme.is_empty() || !path.starts_with("///"));
    let Some(authority) = authority else {
        return escapes(path).then_some(RequestUri { scheme, host: "" });
    };
    let end = authority.find('/').unwrap_or(authority.len());
    let (authority, path) = authority.split_at(end);
    // Everything before the last `@` is user information.
    let host = match authority.rsplit_once('@') {
        Some((user, _)) if !user.bytes().all(is_user_byte) || !escapes(user) => return None,
        Some((_, host)) => host,
        None => authority,
    };
    (host_and_port(host) && escapes(path)).then_some(RequestUri { scheme, host })
}

fn is_user_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b)
}

/// True if every `%` is followed by two hexadecimal digits.
fn escapes(s: &str) -> bool {
    s.split('%').skip(1).all(|rest| rest.get(..2).is_some_and(hex))
}

fn host_and_port(host: &str) -> bool {
    let port_is_valid = |port: &str| {
        port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(inner) = host.strip_prefix('[') {
        // The content of brackets is not checked here; Go only does for zones.
        return inner.rsplit_once(']').is_some_and(|(_, port)| port_is_valid(port));
    }
    // At the first colon: IPv6 addresses need brackets.
    let (name, port) = host.find(':').map_or((host, ""), |i| host.split_at(i));
    let fine = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || b"-._~!$&'()*+,;=:[]<>\"%".contains(&b);
    port_is_valid(port) && name.bytes().all(fine) && escapes(name)
}

/// `local@domain` or `Name <local@domain>`.
pub(super) fn email(s: &str) -> bool {
    // A display name before `<` is not restricted.
    let address = match s.rsplit_once('<') {
        Some((_, rest)) => match rest.trim_end().strip_suffix('>') {
            Some(a) => a,
            None => return false,
        },
        None => s.trim(),
    };
    let atom = |part: &str| {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
        !part.is_empty() && part.split('.').all(|p| !p.is_empty() && p.bytes().all(fine))
    };
    address.rsplit_once('@').is_some_and(|(local, domain)| {
        let quoted = local.strip_prefix('"').and_then(|l| l.strip_suffix('"'));
        let local = quoted.map_or_else(|| atom(local), |l| !l.is_empty());
        let literal = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']'));
        local && literal.map_or_else(|| atom(domain), |ip| ip.parse::<std::net::IpAddr>().is_ok())
    })
}

/// A single label, or labels and a top-level domain of letters. Letters and symbols of any script are
/// allowed.
pub(super) fn hostname(s: &str) -> bool {
    // Upstream's pattern uses Unicode classes, so symbols and marks of any script pass.
    let letter =
        |c: char| c.is_alphabetic() || !c.is_ascii() && !c.is_alphanumeric() && !c.is_whitespace() && !c.is_control();
    let fine = |c: char| c.is_ascii_digit() || letter(c) && !matches!(c, '_');
    let symbol = |c: char| matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~');
    let any = |c: char| fine(c) || symbol(c);
    let label = |l: &str| l.starts_with(any) && l.ends_with(any) && l.chars().all(|c| any(c) || c == '-');
    if s.len() > 255 || s.split('.').any(|l| l.len() > 63) {
        return false;
    }
    match s.rsplit_once('.') {
        // Upstream's pattern has no place for a dash within a single label but its second character.
        None => label(s) && !s.chars().skip(2).any(|c| c == '-') && s.chars().count() <= 64,
        Some((labels, top)) => {
            let letters = top.chars().count() >= 2 && top.chars().all(char::is_alphabetic);
            letters && labels.split('.').all(label)
        }
    }
}

pub(super) fn ipv4(s: &str) -> bool {
    // The second test lets IPv4-mapped IPv6 addresses pass, which contain dots too.
    s.contains('.') && (strip_zeros(s).parse::<Ipv4Addr>().is_ok() || s.parse::<Ipv6Addr>().is_ok())
}

pub(super) fn ipv6(s: &str) -> bool {
    s.contains(':') && s.parse::<Ipv6Addr>().is_ok()
}

/// Removes leading zeros of the octets: Go's lenient IP parser reads `010` as 10.
fn strip_zeros(s: &str) -> String {
    let part = |p: &str| {
        let t = p.trim_start_matches('0');
        if t.is_empty() && !p.is_empty() {
            "0".to_owned()
        } else {
            t.to_owned()
        }
    };
    s.split('.').map(part).collect::<Vec<_>>().join(".")
}

pub(super) fn cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else {
        return false;
    };
    let most = if address.contains(':') {
        address.parse::<Ipv6Addr>().ok().map(|_| 128)
    } else {
        strip_zeros(address).parse::<Ipv4Addr>().ok().map(|_| 32)
    };
    most.is_some_and(|m| {
        // Digits only, since `parse` accepts a plus sign.
        !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|b| b <= m)
    })
}

/// 6, 8 or 20 octets, as `aa:bb`, `aa-bb` or `aabb.ccdd`.
pub(super) fn mac(s: &str) -> bool {
    let of = |separator: char, digits: usize| {
        let parts: Vec<&str> = s.split(separator).collect();
        // Groups of equal length: the number of octets follows from their count.
        parts.iter().all(|p| p.len() == digits && hex(p)) && matches!(parts.len() * digits / 2, 6 | 8 | 20)
    };
    of(':', 2) || of('-', 2) || of('.', 4)
}
