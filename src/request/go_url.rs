//! URLs as Go's `net/url` parses them, as far as its errors reach clients and operators.

use super::percent;
use crate::apimachinery::field::quote;

/// The error of Go's `url.Parse` for this link, if any.
pub(crate) fn parse_error(link: &str) -> Option<String> {
    let (url, fragment) = link.split_once('#').unwrap_or((link, ""));
    // The fragment comes last, and only errors in it quote the whole link.
    let (quoted, why) = match error_before_fragment(url) {
        Some(why) => (url, why),
        None => (link, escape_error(fragment)?),
    };
    Some(format!("parse {}: {why}", quote(quoted)))
}

fn error_before_fragment(url: &str) -> Option<String> {
    if url.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Some("net/url: invalid control character in URL".to_owned());
    }
    let head = url.split('?').next().unwrap_or("");
    let (has_scheme, rest) = match head.split_once(':') {
        Some(("", _)) => return Some("missing protocol scheme".to_owned()),
        Some((scheme, rest)) if is_scheme(scheme) => (true, rest),
        // A colon in a later segment is allowed: `a/b:c` is a relative path.
        Some((first, _)) if !first.contains('/') => {
            return Some("first path segment in URL cannot contain colon".to_owned());
        }
        _ => (false, head),
    };
    // The part after a scheme without a slash is opaque: `mailto:a@b`.
    if has_scheme && !rest.starts_with('/') {
        return None;
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) if has_scheme || !rest.starts_with('/') => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        _ => ("", rest),
    };
    authority_error(authority).or_else(|| escape_error(path))
}

fn authority_error(authority: &str) -> Option<String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user_char = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    host_error(host).or_else(|| match user.chars().all(is_user_char) {
        true => escape_error(user),
        false => Some("net/url: invalid userinfo".to_owned()),
    })
}

fn host_error(host: &str) -> Option<String> {
    // A colon within brackets belongs to an IPv6 address.
    let port = match (host.starts_with('['), host.rfind(']')) {
        (true, None) => return Some("missing ']' in host".to_owned()),
        (true, Some(bracket)) => &host[bracket + 1..],
        (false, _) => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let is_port = |p: &str| p.bytes().all(|b| b.is_ascii_digit());
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Some(format!("invalid port {} after host", quote(port)));
    }
    // The zone of an IPv6 address, which follows, may have any characters.
    let name = host.split("%25").next().unwrap_or(host);
    name.char_indices().find_map(|(at, c)| match c {
        '%' => {
            let escape = name[at..].get(..3).unwrap_or(&name[at..]);
            // Only what is not ASCII may be escaped.
            let is_high = match escape.as_bytes() {
                [_, high, low] => matches!(high, b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F') && low.is_ascii_hexdigit(),
                _ => false,
            };
            (!is_high).then(|| format!("invalid URL escape {}", quote(escape)))
        }
        c if !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~".contains(c) => None,
        c => Some(format!(
            "invalid character {} in host name",
            quote(c.encode_utf8(&mut [0; 4]))
        )),
    })
}

fn escape_error(part: &str) -> Option<String> {
    let escape = percent::malformed_escape(part)?;
    Some(format!("invalid URL escape {}", quote(escape)))
}

/// True if it can be the scheme of a URL.
pub(crate) fn is_scheme(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_urls_are_reported_in_gos_wording() {
        for (link, why) in [
            ("/%zz", Some("parse \"/%zz\": invalid URL escape \"%zz\"")),
            (":x", Some("parse \":x\": missing protocol scheme")),
            (
                "1:x",
                Some("parse \"1:x\": first path segment in URL cannot contain colon"),
            ),
            (
                "http://h:x/",
                Some("parse \"http://h:x/\": invalid port \":x\" after host"),
            ),
            ("https://[::1]:443/a%20b?%zz#c", None),
            ("a/b:c", None),
            ("mailto:a@b", None),
            ("mailto:%zz", None),
            ("*", None),
            ("https://u:p%40@h%C3%A9:1/", None),
            (
                "\0#x",
                Some("parse \"\\x00\": net/url: invalid control character in URL"),
            ),
            ("x#%z", Some("parse \"x#%z\": invalid URL escape \"%z\"")),
            (
                "https://a b/",
                Some("parse \"https://a b/\": invalid character \" \" in host name"),
            ),
            (
                "https://a%20b/",
                Some("parse \"https://a%20b/\": invalid URL escape \"%20\""),
            ),
            ("//[::1/", Some("parse \"//[::1/\": missing ']' in host")),
            ("//[::1]x/", Some("parse \"//[::1]x/\": invalid port \"x\" after host")),
            ("//a b@h/", Some("parse \"//a b@h/\": net/url: invalid userinfo")),
        ] {
            assert_eq!(parse_error(link).as_deref(), why, "{link}");
        }
    }
}
