//! URLs as Go's `net/url` parses them, as far as its errors reach clients and operators.

use super::percent;
use crate::apimachinery::field::quote;

/// The error of Go's `url.Parse` for this link, if any.
pub(crate) fn parse_error(link: &str) -> Option<String> {
    let about = |why: String| Some(format!("parse {}: {why}", quote(link)));
    let (head, fragment) = link.split_once('#').unwrap_or((link, ""));
    let head = head.split('?').next().unwrap_or("");
    let rest = match head.split_once(':') {
        Some(("", _)) => return about("missing protocol scheme".to_owned()),
        Some((scheme, rest)) if is_scheme(scheme) => rest,
        // A colon in a later segment is allowed: `a/b:c` is a relative path.
        Some((first, _)) if !first.contains('/') => {
            return about("first path segment in URL cannot contain colon".to_owned());
        }
        _ => head,
    };
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let host = host.rsplit('@').next().unwrap_or("");
    // A colon within brackets belongs to an IPv6 address.
    if let Some((_, port)) = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'))
        && !port.bytes().all(|b| b.is_ascii_digit())
    {
        return about(format!("invalid port {} after host", quote(&format!(":{port}"))));
    }
    for part in [path, fragment] {
        if let Some(escape) = percent::malformed_escape(part) {
            return about(format!("invalid URL escape {}", quote(escape)));
        }
    }
    None
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
        ] {
            assert_eq!(parse_error(link).as_deref(), why, "{link}");
        }
    }
}
