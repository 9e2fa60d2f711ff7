//! Kubernetes' libraries of IP addresses (`ip`, `isIP`, `family` …) and networks (`cidr`, `containsIP` …). `refusal`
//! words the errors; the values are `value::net`.

mod refusal;

use super::{Body::Strict, Declaration};
use crate::value::net::Net;
use crate::value::{Fail, Out, Val, error, no_overload};
use refusal::refusal;
use std::net::{IpAddr, Ipv6Addr};

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("ip", Strict(ip), &["(string) IP", "CIDR.() IP"]),
    ("isIP", Strict(is_ip), &["(string) bool"]),
    ("ip.isCanonical", Strict(is_canonical), &["(string) bool"]),
    ("family", Strict(family), &["IP.() int"]),
    (
        "isUnspecified",
        Strict(|a| test(a, |ip| ip.is_unspecified())),
        &["IP.() bool"],
    ),
    (
        "isLoopback",
        Strict(|a| test(a, |ip| ip.is_loopback())),
        &["IP.() bool"],
    ),
    (
        "isLinkLocalMulticast",
        Strict(|a| test(a, link_local_multicast)),
        &["IP.() bool"],
    ),
    (
        "isLinkLocalUnicast",
        Strict(|a| test(a, link_local_unicast)),
        &["IP.() bool"],
    ),
    ("isGlobalUnicast", Strict(|a| test(a, global_unicast)), &["IP.() bool"]),
    ("cidr", Strict(cidr), &["(string) CIDR"]),
    ("isCIDR", Strict(is_cidr), &["(string) bool"]),
    (
        "containsIP",
        Strict(contains_ip),
        &["CIDR.(IP) bool", "CIDR.(string) bool"],
    ),
    (
        "containsCIDR",
        Strict(contains_cidr),
        &["CIDR.(CIDR) bool", "CIDR.(string) bool"],
    ),
    ("masked", Strict(masked), &["CIDR.() CIDR"]),
    ("prefixLength", Strict(prefix_length), &["CIDR.() int"]),
];

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        // Multicast of link-local scope, whatever the flags.
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local_unicast(ip))
}

fn parse_ip(s: &str) -> Result<IpAddr, Fail> {
    // Go parses zones; upstream rejects addresses that have one.
    if s.split_once('%')
        .is_some_and(|(ip, zone)| !zone.is_empty() && ip.parse::<Ipv6Addr>().is_ok())
    {
        return error(format!("IP address {s:?} with zone value is not allowed"));
    }
    match s.parse() {
        // Other parsers read such addresses as IPv4.
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            error(format!("IPv4-mapped IPv6 address {s:?} is not allowed"))
        }
        Ok(ip) => Ok(ip),
        Err(_) => {
            let why = refusal(s);
            error(format!(
                "IP Address {s:?} parse error during conversion from string: {why}"
            ))
        }
    }
}

fn parse_cidr(s: &str) -> Result<(IpAddr, u8), Fail> {
    // Upstream prefixes the message twice.
    const WHERE: &str = "network address parse error during conversion from string: ";
    let fail = |why: &str| error(format!("{WHERE}{WHERE}netip.ParsePrefix({s:?}): {why}"));
    let Some((address, bits)) = s.rsplit_once('/') else {
        return fail("no '/'");
    };
    let Ok(ip) = address.parse::<IpAddr>() else {
        return fail(&refusal(address));
    };
    if let IpAddr::V6(v6) = ip
        && v6.to_ipv4_mapped().is_some()
    {
        return error(format!("IPv4-mapped IPv6 address {s:?} is not allowed"));
    }
    // `netip.ParsePrefix` rejects signs and leading zeros.
    let canonical = bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    match bits.parse::<u8>().ok().filter(|_| canonical) {
        Some(bits) if bits <= width(ip) => Ok((ip, bits)),
        Some(_) => fail("prefix length out of range"),
        None => fail(&format!("bad bits after slash: {bits:?}")),
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits after the prefix cleared.
fn network(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            // A shift by the full width leaves an empty mask.
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

fn covers(net: (IpAddr, u8), ip: IpAddr) -> bool {
    // Networks of one family never contain addresses of the other.
    net.0.is_ipv4() == ip.is_ipv4() && network(net.0, net.1) == network(ip, net.1)
}

fn ip<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::String(s)] => parse_ip(s).map(|ip| Val::Net(Net::Ip(ip))),
        [Val::Net(Net::Cidr(ip, _))] => Ok(Val::Net(Net::Ip(*ip))),
        _ => no_overload(),
    }
}

fn is_ip<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    Ok(Val::Bool(parse_ip(s).is_ok()))
}

fn is_canonical<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    parse_ip(s).map(|ip| Val::Bool(ip.to_string() == **s))
}

fn family<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Net(Net::Ip(ip))] => Ok(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => no_overload(),
    }
}

fn test<'a>(args: &[Val<'a>], holds: fn(IpAddr) -> bool) -> Out<'a> {
    match args {
        [Val::Net(Net::Ip(ip))] => Ok(Val::Bool(holds(*ip))),
        _ => no_overload(),
    }
}

fn cidr<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    parse_cidr(s).map(|(ip, bits)| Val::Net(Net::Cidr(ip, bits)))
}

fn is_cidr<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    Ok(Val::Bool(parse_cidr(s).is_ok()))
}

fn contains_ip<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (net, ip) = match args {
        [Val::Net(Net::Cidr(ip, bits)), Val::Net(Net::Ip(wanted))] => ((*ip, *bits), *wanted),
        [Val::Net(Net::Cidr(ip, bits)), Val::String(s)] => match parse_ip(s) {
            Ok(wanted) => ((*ip, *bits), wanted),
            // Upstream's error has no detail.
            Err(_) => return no_overload(),
        },
        _ => return no_overload(),
    };
    Ok(Val::Bool(covers(net, ip)))
}

fn contains_cidr<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (net, inner) = match args {
        [Val::Net(Net::Cidr(ip, bits)), Val::Net(Net::Cidr(i, b))] => ((*ip, *bits), (*i, *b)),
        [Val::Net(Net::Cidr(ip, bits)), Val::String(s)] => ((*ip, *bits), parse_cidr(s)?),
        _ => return no_overload(),
    };
    // The inner network must not be wider, and must start inside.
    Ok(Val::Bool(net.1 <= inner.1 && covers(net, inner.0)))
}

fn masked<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Net(Net::Cidr(ip, bits))] => Ok(Val::Net(Net::Cidr(network(*ip, *bits), *bits))),
        _ => no_overload(),
    }
}

fn prefix_length<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Net(Net::Cidr(_, bits))] => Ok(Val::Int((*bits).into())),
        _ => no_overload(),
    }
}
