//! String and number formats (upstream's `k8s.io/kube-openapi/pkg/validation/strfmt`).

use super::Type;
use crate::apimachinery::validation;
use base64::Engine;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A format that is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid(u8),
    HexColor,
    Byte,
    Password,
    Date,
    DateTime,
    Duration,
    ShortName,
    LongName,
    Int32,
    Int64,
    Float,
    Double,
}

impl Format {
    /// The format with this name for this type; `None` if it is not validated.
    pub(super) fn parse(ty: Option<Type>, name: &str) -> Option<Self> {
        Some(match (ty?, name.replace('-', "").as_str()) {
            (Type::String, "bsonobjectid") => Self::BsonObjectId,
            (Type::String, "uri") => Self::Uri,
            (Type::String, "email") => Self::Email,
            (Type::String, "hostname") => Self::Hostname,
            (Type::String, "ipv4") => Self::Ipv4,
            (Type::String, "ipv6") => Self::Ipv6,
            (Type::String, "cidr") => Self::Cidr,
            (Type::String, "mac") => Self::Mac,
            (Type::String, "uuid") => Self::Uuid(0),
            (Type::String, "uuid3") => Self::Uuid(3),
            (Type::String, "uuid4") => Self::Uuid(4),
            (Type::String, "uuid5") => Self::Uuid(5),
            (Type::String, "hexcolor") => Self::HexColor,
            (Type::String, "byte") => Self::Byte,
            (Type::String, "password") => Self::Password,
            (Type::String, "date") => Self::Date,
            (Type::String, "datetime") => Self::DateTime,
            (Type::String, "duration") => Self::Duration,
            (Type::String, "k8sshortname") => Self::ShortName,
            (Type::String, "k8slongname") => Self::LongName,
            (Type::Integer, "int32") => Self::Int32,
            (Type::Integer, "int64") => Self::Int64,
            (Type::Number, "float") => Self::Float,
            (Type::Number, "double") => Self::Double,
            _ => return None,
        })
    }

    /// The name used in error messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BsonObjectId => "bsonobjectid",
            Self::Uri => "uri",
            Self::Email => "email",
            Self::Hostname => "hostname",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Cidr => "cidr",
            Self::Mac => "mac",
            Self::Uuid(3) => "uuid3",
            Self::Uuid(4) => "uuid4",
            Self::Uuid(5) => "uuid5",
            Self::Uuid(_) => "uuid",
            Self::HexColor => "hexcolor",
            Self::Byte => "byte",
            Self::Password => "password",
            Self::Date => "date",
            Self::DateTime => "date-time",
            Self::Duration => "duration",
            Self::ShortName => "k8s-short-name",
            Self::LongName => "k8s-long-name",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float => "float",
            Self::Double => "double",
        }
    }

    /// True if the number is in the format's range.
    pub(super) fn holds(self, n: f64) -> bool {
        match self {
            Self::Int32 => n >= f64::from(i32::MIN) && n <= f64::from(i32::MAX) && n.fract() == 0.0,
            Self::Int64 => n.fract() == 0.0 && n.abs() <= 9.223_372_036_854_776e18,
            Self::Float => n.abs() <= f64::from(f32::MAX),
            _ => true,
        }
    }

    /// True if the string has this format. Number formats accept any string.
    pub(super) fn matches(self, s: &str) -> bool {
        match self {
            Self::BsonObjectId => s.len() == 24 && hex(s),
            Self::Uri => uri(s),
            Self::Email => email(s),
            Self::Hostname => hostname(s),
            Self::Ipv4 => s.contains('.') && strip_zeros(s).parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => s.contains(':') && s.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => cidr(s),
            Self::Mac => mac(s),
            Self::Uuid(version) => uuid(s, version),
            Self::HexColor => s.strip_prefix('#').is_some_and(|h| matches!(h.len(), 3 | 6) && hex(h)),
            Self::Byte => !s.is_empty() && base64::engine::general_purpose::STANDARD.decode(s).is_ok(),
            Self::Date => date(s),
            Self::DateTime => date_time(s),
            Self::Duration => duration(s),
            Self::ShortName => validation::dns1123_label(s).is_empty(),
            Self::LongName => validation::dns1123_subdomain(s).is_empty(),
            Self::Password | Self::Int32 | Self::Int64 | Self::Float | Self::Double => true,
        }
    }
}

fn hex(s: &str) -> bool {
    s.bytes().all(|b| b.is_ascii_hexdigit())
}

/// An absolute URI, or an absolute path.
fn uri(s: &str) -> bool {
    if s.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return false;
    }
    if s.starts_with('/') {
        return true;
    }
    s.split_once(':').is_some_and(|(scheme, _)| {
        let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        scheme.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && scheme.bytes().all(word)
    })
}

/// `local@domain` or `Name <local@domain>`.
fn email(s: &str) -> bool {
    let address = match s.rsplit_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(a) => a,
            None => return false,
        },
        None => s.trim(),
    };
    let atom = |part: &str, extra: &[u8]| {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || extra.contains(&b);
        !part.is_empty() && part.split('.').all(|p| !p.is_empty() && p.bytes().all(fine))
    };
    address.rsplit_once('@').is_some_and(|(local, domain)| {
        let local = local
            .strip_prefix('"')
            .and_then(|l| l.strip_suffix('"'))
            .map_or_else(|| atom(local, b"!#$%&'*+-/=?^_`{|}~"), |l| !l.is_empty());
        local && atom(domain, b"!#$%&'*+-/=?^_`{|}~")
    })
}

fn hostname(s: &str) -> bool {
    let label = |l: &str| {
        let ends = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        l.len() <= 63
            && ends(l.chars().next())
            && ends(l.chars().last())
            && l.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    !s.is_empty() && s.len() <= 255 && s.split('.').all(label)
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

fn cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else {
        return false;
    };
    let most = if address.contains(':') {
        address.parse::<Ipv6Addr>().ok().map(|_| 128)
    } else {
        strip_zeros(address).parse::<Ipv4Addr>().ok().map(|_| 32)
    };
    most.is_some_and(|m| {
        !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|b| b <= m)
    })
}

/// 6, 8 or 20 octets, as `aa:bb`, `aa-bb` or `aabb.ccdd`.
fn mac(s: &str) -> bool {
    let of = |separator: char, digits: usize| {
        let parts: Vec<&str> = s.split(separator).collect();
        parts.iter().all(|p| p.len() == digits && hex(p)) && matches!(parts.len() * digits / 2, 6 | 8 | 20)
    };
    of(':', 2) || of('-', 2) || of('.', 4)
}

fn uuid(s: &str, version: u8) -> bool {
    let mut digits = s.bytes();
    for (i, group) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 && digits.clone().next() == Some(b'-') {
            digits.next();
        }
        for at in 0..group {
            let Some(d) = digits.next().filter(u8::is_ascii_hexdigit) else {
                return false;
            };
            let wrong_version = i == 2 && at == 0 && version > 0 && d != b'0' + version;
            let wrong_variant =
                i == 3 && at == 0 && version > 3 && !matches!(d, b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
            if wrong_version || wrong_variant {
                return false;
            }
        }
    }
    digits.next().is_none()
}

fn number(s: &str, digits: usize, low: u32, high: u32) -> bool {
    s.len() == digits
        && s.bytes().all(|b| b.is_ascii_digit())
        && s.parse().is_ok_and(|n: u32| (low..=high).contains(&n))
}

fn date(s: &str) -> bool {
    let format = time::macros::format_description!("[year]-[month]-[day]");
    s.len() == 10 && time::Date::parse(s, format).is_ok()
}

fn date_time(s: &str) -> bool {
    if !s.is_ascii() || s.len() < 20 || !date(&s[..10]) || !matches!(&s[10..11], "T" | "t") {
        return false;
    }
    let rest = &s[11..];
    let clock = rest.get(..8).is_some_and(|c| {
        let p: Vec<&str> = c.split(':').collect();
        matches!(p.as_slice(), [h, m, s] if number(h, 2, 0, 23) && number(m, 2, 0, 59) && number(s, 2, 0, 59))
    });
    if !clock {
        return false;
    }
    let mut zone = &rest[8..];
    if let Some(fraction) = zone.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return false;
        }
        zone = &fraction[digits..];
    }
    matches!(zone, "Z" | "z")
        || zone.strip_prefix(['+', '-']).is_some_and(|z| {
            z.split_once(':')
                .is_some_and(|(h, m)| number(h, 2, 0, 23) && number(m, 2, 0, 59))
        })
}

/// Go durations (`1h30m`) and spelled-out ones (`3 days 2h`).
fn duration(s: &str) -> bool {
    const WORDS: [&str; 9] = [
        "nanoseconds",
        "microseconds",
        "milliseconds",
        "seconds",
        "minutes",
        "hours",
        "days",
        "weeks",
        "mins",
    ];
    let unit = |u: &str| {
        matches!(
            u,
            "ns" | "us"
                | "µs"
                | "μs"
                | "ms"
                | "s"
                | "m"
                | "h"
                | "d"
                | "w"
                | "sec"
                | "secs"
                | "min"
                | "hr"
                | "hrs"
                | "wk"
                | "wks"
        ) || u.len() > 1 && WORDS.iter().any(|w| w.starts_with(u))
    };
    let mut rest = s.trim().trim_start_matches(['+', '-']);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number = &rest[..digits];
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        rest = rest[digits..].trim_start();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        if !unit(&rest[..end]) {
            return false;
        }
        rest = rest[end..].trim_start_matches([' ', ',']);
        any = true;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_valid_and_reject_invalid_strings() {
        let table: [(Format, &[&str], &[&str]); 12] = [
            (
                Format::DateTime,
                &["2020-01-02T03:04:05Z", "2020-01-02t03:04:05.5+01:00"],
                &["2020-01-02", "2020-01-02T03:04:60Z", "2020-02-30T00:00:00Z", ""],
            ),
            (Format::Date, &["2020-02-29"], &["2021-02-29", "2020-2-9"]),
            (Format::Ipv4, &["1.2.3.4", "010.0.0.1"], &["1.2.3", "::1"]),
            (Format::Ipv6, &["::1"], &["1.2.3.4", "g::"]),
            (Format::Cidr, &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            (
                Format::Uuid(0),
                &[
                    "7f3e0b9a-0d0a-4a2c-9b0e-000000000000",
                    "7F3E0B9A0D0A4A2C9B0E000000000000",
                ],
                &["z", "7f3e0b9a-0d0a"],
            ),
            (
                Format::Uuid(4),
                &["7f3e0b9a-0d0a-4a2c-9b0e-000000000000"],
                &["7f3e0b9a-0d0a-3a2c-9b0e-000000000000"],
            ),
            (Format::Byte, &["QQ=="], &["", "Q"]),
            (Format::Uri, &["http://x/y", "/a"], &["a", "http://x y"]),
            (Format::Email, &["a@b.c", "A <a@b>"], &["a", "a@", "@b"]),
            (
                Format::Duration,
                &["1h30m", "3 days 2h", "1.5s", "0"],
                &["", "h", "1", "1x"],
            ),
            (
                Format::Mac,
                &["01:23:45:67:89:ab", "0123.4567.89ab"],
                &["01:23", "01:23:45:67:89:zz"],
            ),
        ];
        for (format, good, bad) in table {
            good.iter().for_each(|s| assert!(format.matches(s), "{format:?} {s:?}"));
            bad.iter().for_each(|s| assert!(!format.matches(s), "{format:?} {s:?}"));
        }
    }
}
