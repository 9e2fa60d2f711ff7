//! Browser isolation: limits the effects of a backend's response in a browser.
//!
//! To a browser all backends share one origin, that of the gateway, where the user may also be logged in.
//! Headers that set state for the origin (cookies, credentials, transport security) are therefore removed,
//! and a backend's page is sandboxed.

use crate::request::headers::remove_all;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, X_CONTENT_TYPE_OPTIONS};

const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Whether a browser applies this response header to the whole origin, or asks the user for credentials
/// because of it. `name` is lower-case.
pub(super) fn acts_on_it(name: &str) -> bool {
    // Dispatch on the first letter: this runs for each header of each response.
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
pub(crate) fn strip(headers: &mut HeaderMap) {
    remove_all(headers, |name| acts_on_it(name.as_str()));
}

/// Confines a response that a browser might render: it runs in an opaque origin without scripts, and its type
/// is not sniffed. A policy sent by the backend is kept, since browsers enforce all policies. Returns whether
/// the response was confined.
pub(crate) fn confine(headers: &mut HeaderMap) -> bool {
    if is_inert(headers) {
        return false;
    }
    // Appended: browsers enforce every policy, so the backend's own cannot loosen this one.
    headers.append(CONTENT_SECURITY_POLICY, SANDBOX);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    true
}

/// Whether the response's type is known to be one that browsers do not execute. A missing, repeated or
/// unknown type is not inert; neither are HTML, XHTML, SVG and any XML, which may contain scripts or
/// stylesheets.
pub(crate) fn is_inert(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    // Without a type, or with several, the browser would choose.
    let (Some(first), None) = (types.next(), types.next()) else {
        return false;
    };
    // Fast path for the types that API servers send.
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
    // Browsers disagree on how to read several types in one header.
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
        // Scripts and stylesheets take effect only in a page that includes them.
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
    // SVG, XHTML and other XML may contain scripts.
    !essence.ends_with("+xml")
        && (KNOWN.contains(&essence)
            || family.iter().any(|f| essence.starts_with(f))
            || suffix.iter().any(|s| essence.ends_with(s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::headers::tests::{all, map};

    #[test]
    fn only_types_that_browsers_do_not_execute_are_inert() {
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
    fn a_page_is_confined_in_addition_to_its_own_policy() {
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
