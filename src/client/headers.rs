//! Request and response headers on their way through: what the backend may see, and what the client may.

use crate::request::headers::remove_all;
use crate::request::{Interim, UserInfo};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;

const X_REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const X_REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const X_REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const X_REMOTE_EXTRA: &str = "x-remote-extra-";
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// Says which request a backend's audit events and log lines belong to.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What belongs to one connection.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "proxy-connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// A header value that no transport can carry: the canonical name of the header.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidValue(pub String);

/// Removes every identity the client claims (and the credentials it sent us), then states the caller's.
///
/// HTTP/1 connections write names with capitals at the start and behind dashes, which is how Go writes them, down to
/// the lower-case `%2f` of an escaped extra key.
///
/// # Errors
/// [`InvalidValue`] where a name, group or extra holds bytes that are not allowed in headers.
pub fn set_identity(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), InvalidValue> {
    remove_all(headers, |name| {
        name.as_str().starts_with(X_REMOTE_EXTRA)
            || matches!(
                name.as_str(),
                "authorization" | "x-remote-user" | "x-remote-uid" | "x-remote-group"
            )
    });
    headers.insert(X_REMOTE_USER, value(&X_REMOTE_USER, &user.name)?);
    if !user.uid.is_empty() {
        headers.insert(X_REMOTE_UID, value(&X_REMOTE_UID, &user.uid)?);
    }
    for group in &user.groups {
        headers.append(X_REMOTE_GROUP, value(&X_REMOTE_GROUP, group)?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::from_bytes(extra_name(key).as_bytes())
            .map_err(|_| InvalidValue(format!("X-Remote-Extra-{key}")))?;
        for v in values {
            headers.append(name.clone(), value(&name, v)?);
        }
    }
    Ok(())
}

fn value(name: &HeaderName, v: &str) -> Result<HeaderValue, InvalidValue> {
    HeaderValue::from_str(v)
        .or_else(|_| HeaderValue::from_bytes(v.as_bytes()))
        .map_err(|_| InvalidValue(canonical_name(name.as_str())))
}

/// Every byte of an extra key that is no token byte, and `%` itself, as `%xx`.
fn extra_name(key: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(X_REMOTE_EXTRA.len() + key.len());
    out.push_str(X_REMOTE_EXTRA);
    for b in key.bytes() {
        match b {
            b'%' => out.push_str("%25"),
            b if b.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&b) => out.push(char::from(b)),
            b => write!(out, "%{b:02x}").expect("writing to a string does not fail"),
        }
    }
    out
}

/// A name as Go's `textproto.CanonicalMIMEHeaderKey` spells it.
pub fn canonical_name(name: &str) -> String {
    let mut up = true;
    name.chars()
        .map(|c| {
            let c = if up {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            };
            up = c == '-';
            c
        })
        .collect()
}

/// Takes away what belongs to the client's connection. `Te: trailers` stays for requests that ask for it.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .filter_map(|n| HeaderName::from_bytes(n.trim().as_bytes()).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    remove_all(headers, |name| is_hop_by_hop(name.as_str()));
    if headers.contains_key(header::TRAILER) {
        announce_trailers(headers);
    }
}

/// `Trailer` belongs to one connection, but what it announces travels, so the next connection announces it too: all but
/// what would say who calls, or where a message ends.
fn announce_trailers(headers: &mut HeaderMap) {
    let names: Vec<String> = headers
        .get_all(header::TRAILER)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty() && may_trail(&name.to_ascii_lowercase()))
        .collect();
    headers.remove(header::TRAILER);
    // A message of a stated length has none over HTTP/1.1.
    if names.is_empty() || headers.contains_key(header::CONTENT_LENGTH) {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(names.join(", ")) {
        headers.insert(header::TRAILER, value);
    }
}

/// Takes out of trailers what a header of this name would not be let through with.
pub fn clean_trailers(trailers: &mut HeaderMap) {
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
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    !names.contains(&name) && !prefixes.iter().any(|p| name.starts_with(p))
}

/// True where the client asked for trailers.
pub fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|v| {
        v.to_str()
            .is_ok_and(|v| v.split(',').any(|t| t.trim().eq_ignore_ascii_case("trailers")))
    })
}

/// For upgrades, whose `Connection` travels on: takes headers that we state out of it, so that no backend drops them as
/// belonging to the connection.
pub fn keep_identity_end_to_end(headers: &mut HeaderMap) {
    let ours = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name.starts_with("x-remote-") || name.starts_with("x-forwarded-") || name == "audit-id"
    };
    let lines: Vec<&str> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    if !lines.iter().flat_map(|l| l.split(',')).any(ours) {
        return;
    }
    let kept: Vec<&str> = lines
        .iter()
        .flat_map(|l| l.split(','))
        .map(str::trim)
        .filter(|n| !ours(n))
        .collect();
    let kept = HeaderValue::from_str(&kept.join(", "));
    headers.remove(header::CONNECTION);
    if let Ok(kept) = kept {
        headers.insert(header::CONNECTION, kept);
    }
}

/// True where the client asks to change the protocol: any `Connection` value that contains "upgrade".
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .any(|v| v.to_str().is_ok_and(|v| v.to_ascii_lowercase().contains("upgrade")))
}

/// Adds the client's address to `X-Forwarded-For`, folding what is there into one list.
pub fn forwarded_for(headers: &mut HeaderMap, client: Option<IpAddr>) {
    let Some(client) = client else { return };
    let before: Vec<&str> = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    let all = if before.is_empty() {
        client.to_string()
    } else {
        format!("{}, {client}", before.join(", "))
    };
    if let Ok(v) = HeaderValue::try_from(all) {
        headers.insert(X_FORWARDED_FOR, v);
    }
}

/// Sets `X-Forwarded-Host` (the backend's, as upstream does), `-Proto` and `-Uri`.
pub fn forwarded_target(headers: &mut HeaderMap, host: HeaderValue, path: &str) {
    headers.insert(X_FORWARDED_HOST, host);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
    if let Ok(v) = HeaderValue::from_str(&super::url::cleaned_path(path)) {
        headers.insert(X_FORWARDED_URI, v);
    }
}

/// Asks for gzip in the client's place, where it asked for nothing itself. True: the answer must be unpacked.
pub fn ask_for_gzip(method: &http::Method, headers: &mut HeaderMap) -> bool {
    if headers.contains_key(header::ACCEPT_ENCODING)
        || headers.contains_key(header::RANGE)
        || *method == http::Method::HEAD
    {
        return false;
    }
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    true
}

/// What the peer answers ahead of its answer goes to `interim`.
pub fn pass_interim<B>(request: &mut http::Request<B>, interim: Interim) {
    hyper::ext::on_informational(request, move |early| {
        let mut headers = early.headers().clone();
        clean_response(&mut headers);
        interim.send(early.status(), &headers);
    });
}

/// Takes from a backend's answer what is not the backend's to say.
pub fn clean_response(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    remove_all(headers, |name| {
        matches!(
            name.as_str(),
            "access-control-allow-credentials"
                | "access-control-allow-headers"
                | "access-control-allow-methods"
                | "access-control-allow-origin"
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (HeaderName::try_from(*k).unwrap(), HeaderValue::from_str(v).unwrap()))
            .collect()
    }

    fn all<'a>(h: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        h.get_all(name).iter().map(|v| v.to_str().unwrap()).collect()
    }

    #[test]
    fn an_upgrade_cannot_name_our_headers_as_its_connections() {
        let mut h = map(&[
            ("Connection", "Upgrade, X-Remote-User"),
            ("Connection", "audit-id,keep-alive"),
        ]);
        keep_identity_end_to_end(&mut h);
        assert_eq!(all(&h, "connection"), ["Upgrade, keep-alive"]);
        let mut plain = map(&[("Connection", "Upgrade")]);
        keep_identity_end_to_end(&mut plain);
        assert_eq!(all(&plain, "connection"), ["Upgrade"]);
    }

    #[test]
    fn identity_replaces_every_claim_of_the_client() {
        let mut h = map(&[
            ("X-Remote-User", "evil"),
            ("X-Remote-Uid", "1"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Extra-Scopes", "all"),
            ("Authorization", "Bearer secret"),
            ("Cookie", "kept"),
        ]);
        let mut user = UserInfo::system("alice", &["b", "a"]);
        user.extra
            .insert("scopes.example.com/foo".into(), vec!["x".into(), "y".into()]);
        set_identity(&mut h, &user).unwrap();
        assert_eq!(all(&h, "x-remote-user"), ["alice"]);
        assert_eq!(all(&h, "x-remote-group"), ["b", "a"]);
        assert_eq!(all(&h, "x-remote-extra-scopes.example.com%2ffoo"), ["x", "y"]);
        assert_eq!(all(&h, "cookie"), ["kept"]);
        assert_eq!(h.len(), 6);
    }

    #[test]
    fn names_are_spelled_as_go_spells_them() {
        assert_eq!(
            canonical_name(&extra_name("authentication.kubernetes.io/credential-id")),
            "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id"
        );
    }

    #[test]
    fn an_illegal_extra_value_is_an_error() {
        let mut user = UserInfo::system("alice", &[]);
        user.extra.insert("foo".into(), vec!["a\nb".into()]);
        assert_eq!(
            set_identity(&mut HeaderMap::new(), &user),
            Err(InvalidValue("X-Remote-Extra-Foo".into()))
        );
    }

    #[test]
    fn headers_of_the_connection_do_not_travel() {
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
    fn announced_trailers_travel_but_no_identity_does() {
        let mut h = map(&[("trailer", "X-Sum, X-Remote-User"), ("trailer", "content-length")]);
        strip_hop_by_hop(&mut h);
        assert_eq!(all(&h, "trailer"), ["X-Sum"]);
        let mut t = map(&[
            ("x-sum", "1"),
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
    fn an_upgrade_is_any_connection_value_that_contains_the_word() {
        assert!(wants_upgrade(&map(&[
            ("connection", "keep-alive"),
            ("connection", "x-UpGraded")
        ])));
        assert!(!wants_upgrade(&map(&[("upgrade", "websocket")])));
    }

    #[test]
    fn forwarding_addresses_fold_into_one_list() {
        let mut h = map(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")]);
        forwarded_for(&mut h, Some("127.0.0.1".parse().unwrap()));
        assert_eq!(all(&h, "x-forwarded-for"), ["1.1.1.1, 2.2.2.2, 3.3.3.3, 127.0.0.1"]);
        let mut own = HeaderMap::new();
        forwarded_for(&mut own, None);
        assert!(own.is_empty());
    }

    proptest! {
        #[test]
        fn extra_keys_survive_lower_casing_and_decoding(key in "[ -~é]{1,20}") {
            let name = extra_name(&key);
            prop_assert!(HeaderName::from_bytes(name.as_bytes()).is_ok());
            let suffix = name.strip_prefix(X_REMOTE_EXTRA).unwrap().to_ascii_lowercase();
            let mut bytes = Vec::new();
            let mut rest = suffix.bytes();
            while let Some(b) = rest.next() {
                bytes.push(if b == b'%' {
                    let hex = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
                } else { b });
            }
            prop_assert_eq!(bytes, key.bytes().map(|b| b.to_ascii_lowercase()).collect::<Vec<_>>());
        }
    }
}
