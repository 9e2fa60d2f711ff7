//! Header rules of the proxies: which request headers reach a backend, and which response headers reach a
//! client.
//!
//! Entry points: [`Special::of`], which scans a message's header names once, then its methods; [`Identity`]
//! states the caller. `origin` confines responses in browsers.

mod identity;
pub(crate) mod origin;
mod special;

use super::hops::HOPS;
pub(crate) use identity::{Identity, InvalidValue};
pub(crate) use special::Special;

use crate::request::headers::{folds_to, folds_to_prefix, listed, remove_all, retain_announced};
use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// Bytes of `Connection` that are looked at in whole.
const MAX_CONNECTION: usize = 4 << 10;
/// Correlates the audit events and log lines of a backend with the request.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Removes hop-by-hop headers (RFC 9110, 7.6.1).
#[cfg(test)]
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    Special::of(headers).strip_hop_by_hop(headers);
}

/// Removes the headers that a backend may not send to clients: hop-by-hop and CORS.
pub(crate) fn clean_response(headers: &mut HeaderMap) {
    Special::of(headers).clean_response(headers);
}

/// Announces on the next connection the trailers that travel: all except those that could claim an identity
/// or affect framing. `Trailer` itself belongs to one connection only.
fn announce_trailers(headers: &mut HeaderMap) {
    // Over HTTP/1.1 a message with `Content-Length` cannot have trailers.
    let can_trail = !headers.contains_key(header::CONTENT_LENGTH);
    retain_announced(headers, |name| can_trail && may_trail(name));
}

/// Removes the trailers whose names would not pass as headers either.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    remove_all(trailers, |name| !may_trail(name.as_str()));
}

fn may_trail(name: &str) -> bool {
    let prefixes = ["x-remote-", "x-forwarded-", "impersonate-"];
    let names = [
        "audit-id",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-torana-hops",
    ];
    // Compared with `folds_to`, since some backends (CGI, WSGI) treat `_` like `-`: `x_remote_user` would
    // claim an identity too.
    !names.iter().any(|n| folds_to(name, n)) && !prefixes.iter().any(|p| folds_to_prefix(name, p))
}

/// Whether the client accepts trailers.
pub(crate) fn wants_trailers(headers: &HeaderMap) -> bool {
    listed(headers, header::TE).any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// For upgrades, whose `Connection` header is passed on: removes the headers that the gateway sets from its
/// list, so that no backend drops them as hop-by-hop.
pub(crate) fn keep_identity_end_to_end(headers: &mut HeaderMap) {
    let ours = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name.starts_with("x-remote-") || name.starts_with("x-forwarded-") || name == "audit-id" || name == HOPS.as_str()
    };
    let lines = headers.get_all(header::CONNECTION);
    let is_short = lines.iter().map(HeaderValue::len).sum::<usize>() <= MAX_CONNECTION;
    // A line with other bytes than ASCII is rewritten, too: a backend may read the names in it nevertheless.
    let is_harmless = |line: &HeaderValue| line.to_str().is_ok_and(|line| !line.split(',').any(ours));
    // Usually there is nothing to remove, and the client's lines stay as they are.
    if is_short && lines.iter().all(is_harmless) {
        return;
    }
    let kept: Vec<&str> = listed(headers, header::CONNECTION).filter(|n| !ours(n)).collect();
    let kept = HeaderValue::from_str(&kept.join(", "));
    // Even if the joined value cannot be set: with the original, the backend could drop the identity headers.
    headers.remove(header::CONNECTION);
    if let Ok(kept) = kept {
        headers.insert(header::CONNECTION, kept);
    }
}

/// Whether the client requests an upgrade. As upstream's `httpstream.IsUpgradeRequest`: any `Connection`
/// value that contains "upgrade", unless there is far more in it than any client sends.
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter().take(16);
    let mut short = lines.filter(|line| line.len() <= MAX_CONNECTION);
    short.any(|v| v.to_str().is_ok_and(|v| v.to_ascii_lowercase().contains("upgrade")))
}

/// Appends the client's address to `X-Forwarded-For`, joining several headers into one as Go's `ReverseProxy`
/// does.
pub(crate) fn forwarded_for(headers: &mut HeaderMap, client: Option<IpAddr>) {
    let Some(client) = client else { return };
    match headers.entry(X_FORWARDED_FOR) {
        Entry::Vacant(none) => {
            none.insert(address(client));
        }
        Entry::Occupied(mut some) => {
            // Values that are not ASCII are dropped: they are not addresses.
            let before: Vec<&str> = some.iter().filter_map(|v| v.to_str().ok()).collect();
            let all = match before.is_empty() {
                true => Ok(address(client)),
                false => HeaderValue::try_from(format!("{}, {client}", before.join(", "))),
            };
            if let Ok(all) = all {
                some.insert(all);
            }
        }
    }
}

/// Formats an address as a header value. IPv4 is written by hand, which takes a tenth of the time of
/// `format!`.
fn address(client: IpAddr) -> HeaderValue {
    let written = match client {
        IpAddr::V6(v6) => HeaderValue::try_from(v6.to_string()),
        IpAddr::V4(v4) => {
            let mut text = [0; "255.255.255.255".len()];
            let mut len = 0;
            let mut put = |byte: u8| {
                text[len] = byte;
                len += 1;
            };
            for (i, n) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    put(b'.');
                }
                if n >= 100 {
                    put(b'0' + n / 100);
                }
                if n >= 10 {
                    put(b'0' + n / 10 % 10);
                }
                put(b'0' + n % 10);
            }
            HeaderValue::from_bytes(&text[..len])
        }
    };
    written.expect("an address is digits, letters, dots and colons")
}

/// Sets `X-Forwarded-Host` (the backend's host, as upstream does), `-Proto` and `-Uri`.
pub(crate) fn forwarded_target(headers: &mut HeaderMap, host: HeaderValue, path: &str) {
    headers.insert(X_FORWARDED_HOST, host);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
    if let Ok(v) = HeaderValue::from_str(&super::url::cleaned_path(path)) {
        headers.insert(X_FORWARDED_URI, v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (HeaderName::try_from(*k).unwrap(), HeaderValue::from_str(v).unwrap()))
            .collect()
    }

    pub(super) fn all<'a>(h: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        h.get_all(name).iter().map(|v| v.to_str().unwrap()).collect()
    }

    #[test]
    fn an_upgrade_cannot_mark_identity_headers_hop_by_hop() {
        let mut h = map(&[
            ("Connection", "Upgrade, X-Remote-User"),
            ("Connection", "audit-id,keep-alive"),
        ]);
        keep_identity_end_to_end(&mut h);
        assert_eq!(all(&h, "connection"), ["Upgrade, keep-alive"]);
        let mut plain = map(&[("Connection", "Upgrade")]);
        keep_identity_end_to_end(&mut plain);
        assert_eq!(all(&plain, "connection"), ["Upgrade"]);
        let opaque = HeaderValue::from_bytes(b"X-Remote-User, \xff").unwrap();
        plain.append(header::CONNECTION, opaque);
        keep_identity_end_to_end(&mut plain);
        assert_eq!(all(&plain, "connection"), ["Upgrade"]);
        let long = format!("Upgrade{}", ", x-remote-user, a".repeat(1 << 16));
        let mut long = map(&[("Connection", long.as_str())]);
        keep_identity_end_to_end(&mut long);
        assert!(!all(&long, "connection")[0].contains("x-remote-user"));
        assert!(all(&long, "connection")[0].len() < MAX_CONNECTION);
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut h = map(&[
            ("Connection", "close, X-Mine"),
            ("X-Mine", "1"),
            ("Te", "trailers"),
            ("Keep-Alive", "5"),
            ("Upgrade", "h2c"),
            ("X-Other", "1"),
        ]);
        assert!(wants_trailers(&h));
        strip_hop_by_hop(&mut h);
        assert_eq!(h, map(&[("X-Other", "1")]));
    }

    #[test]
    fn announced_trailers_travel_except_identities() {
        let mut h = map(&[("trailer", "X-Sum, X-Remote-User"), ("trailer", "content-length")]);
        strip_hop_by_hop(&mut h);
        assert_eq!(all(&h, "trailer"), ["X-Sum"]);
        let mut t = map(&[
            ("x-sum", "1"),
            ("x_remote_user", "root"),
            ("impersonate.user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-user", "root"),
        ]);
        clean_trailers(&mut t);
        assert_eq!((t.len(), all(&t, "x-sum")), (1, vec!["1"]));
        let mut h = map(&[("trailer", "X-Sum"), ("content-length", "5")]);
        strip_hop_by_hop(&mut h);
        assert!(h.keys().all(|k| k != "trailer"));
    }

    #[test]
    fn any_connection_value_containing_upgrade_is_an_upgrade() {
        assert!(wants_upgrade(&map(&[
            ("connection", "keep-alive"),
            ("connection", "x-UpGraded")
        ])));
        assert!(!wants_upgrade(&map(&[("upgrade", "websocket")])));
    }

    #[test]
    fn forwarded_for_values_are_joined() {
        let mut h = map(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")]);
        forwarded_for(&mut h, Some("127.0.0.1".parse().unwrap()));
        assert_eq!(all(&h, "x-forwarded-for"), ["1.1.1.1, 2.2.2.2, 3.3.3.3, 127.0.0.1"]);
        let mut own = HeaderMap::new();
        forwarded_for(&mut own, None);
        assert!(own.is_empty());
    }

    proptest! {
        #[test]
        fn an_address_is_formatted_as_display_does(v4: [u8; 4], v6: [u8; 16]) {
            for ip in [IpAddr::from(v4), IpAddr::from(v6)] {
                let value = address(ip);
                prop_assert_eq!(value.to_str().unwrap(), ip.to_string());
            }
        }
    }
}
