//! What a backend's answer may do in a browser that asked this gateway for it.
//!
//! To a browser all backends are one origin: the gateway's, under which the user may also be logged in. Headers that set
//! state for that origin (cookies, credentials, transport security) are the gateway's to say, and a page of a backend must
//! not run as if it were the gateway's own.

use crate::request::headers::remove_all;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, X_CONTENT_TYPE_OPTIONS};

const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// True of headers of answers that a browser applies to the whole origin, or that make it ask the user for credentials.
/// `name` is lower-case.
pub(super) fn acts_on_it(name: &str) -> bool {
    // By the first letter: this is asked of each header of each answer.
    let some: &[&str] = match name.as_bytes().first() {
        Some(b'a') => &["alt-svc", "accept-ch", "authentication-info"],
        Some(b'c') => &["clear-site-data", "critical-ch"],
        Some(b'e') => &["expect-ct"],
        Some(b'n') => &["nel"],
        Some(b'o') => &["origin-agent-cluster"],
        Some(b'p') => &[
            "proxy-authentication-info",
            "public-key-pins",
            "public-key-pins-report-only",
        ],
        Some(b'r') => &["report-to", "reporting-endpoints"],
        Some(b's') => &[
            "set-cookie",
            "set-cookie2",
            "service-worker-allowed",
            "strict-transport-security",
        ],
        Some(b'w') => &["www-authenticate"],
        _ => &[],
    };
    some.contains(&name)
}

/// Removes headers that act on the whole origin.
pub fn strip(headers: &mut HeaderMap) {
    remove_all(headers, |name| acts_on_it(name.as_str()));
}

/// Confines an answer that a browser might show as a page: it runs in an origin of its own, without scripts, and its type
/// is not guessed. A policy of the backend's own stays beside it; browsers obey both. True: it was confined.
pub fn confine(headers: &mut HeaderMap) -> bool {
    if is_inert(headers) {
        return false;
    }
    headers.append(CONTENT_SECURITY_POLICY, SANDBOX);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    true
}

/// True where the answer's type is one that no browser runs. What has no type, several, or one that is not known to be
/// harmless is not inert: HTML, XHTML, SVG and XML of any kind (stylesheets) among them.
pub fn is_inert(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        return false;
    };
    // Nearly all answers, as API servers write them.
    let usual = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/cbor",
        "text/plain",
    ];
    let is_usual = |name: &&str| {
        let rest = first.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b';')) && !rest.contains(&b','))
    };
    if usual.iter().any(is_usual) {
        return true;
    }
    let Ok(text) = first.to_str() else { return false };
    // Several types in one line are read differently by different browsers.
    if text.contains(',') {
        return false;
    }
    let essence = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    is_inert_type(&essence)
}

fn is_inert_type(essence: &str) -> bool {
    const KNOWN: [&str; 14] = [
        "application/cbor",
        "application/cbor-seq",
        "application/grpc",
        "application/javascript",
        "application/json",
        "application/octet-stream",
        "application/yaml",
        "application/zip",
        "application/gzip",
        "text/css",
        "text/csv",
        "text/event-stream",
        "text/javascript",
        "text/plain",
    ];
    let family = [
        "audio/",
        "font/",
        "image/",
        "video/",
        "application/vnd.kubernetes.protobuf",
    ];
    let suffix = ["+cbor", "+json", "+protobuf", "+yaml"];
    !essence.ends_with("+xml")
        && (KNOWN.contains(&essence)
            || family.iter().any(|f| essence.starts_with(f))
            || suffix.iter().any(|s| essence.ends_with(s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::headers::tests::{all, map};

    #[test]
    fn only_types_that_no_browser_runs_are_inert() {
        for inert in [
            "application/json",
            "application/json;stream=watch",
            "Application/JSON ; charset=utf-8",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            "text/plain; charset=utf-8",
            "image/png",
        ] {
            assert!(is_inert(&map(&[("content-type", inert)])), "{inert}");
        }
        for active in [
            "text/html",
            "TEXT/HTML;charset=utf-8",
            "application/xhtml+xml",
            "image/svg+xml",
            "text/xml",
            "application/xml",
            "application/rss+xml",
            "application/pdf",
            "multipart/x-mixed-replace",
            "application/jsonp",
            "text/plain, text/html",
            "text/plain;a=b, text/html",
            "",
        ] {
            assert!(!is_inert(&map(&[("content-type", active)])), "{active}");
        }
        let twice = map(&[("content-type", "application/json"), ("content-type", "text/html")]);
        assert!(!is_inert(&twice) && !is_inert(&HeaderMap::new()));
    }

    #[test]
    fn a_page_is_confined_beside_its_own_policy() {
        let mut h = map(&[
            ("content-type", "text/html"),
            ("content-security-policy", "default-src 'self'"),
            ("x-content-type-options", "sniff"),
        ]);
        assert!(confine(&mut h));
        assert_eq!(all(&h, "content-security-policy"), ["default-src 'self'", "sandbox"]);
        assert_eq!(all(&h, "x-content-type-options"), ["nosniff"]);
        let mut json = map(&[("content-type", "application/json")]);
        assert!(!confine(&mut json));
        assert_eq!(json.len(), 1);
    }
}
