//! Bodies for authentication and authorization: client certificates, front-proxy and impersonation headers,
//! the authorization configuration, ABAC policies, roles.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use torana::apimachinery::codec::json;
use torana::testing::authn::{self, RequestHeaderNames};
use torana::testing::authz::{self, Abac, PolicyRule, is_impersonation_header, requested_identity};
use torana::testing::x509::{CertificateRequest, Name};

/// The file is accepted, or refused with a message.
pub(crate) fn configuration(data: &[u8]) {
    if let Err(e) = authz::parse(data) {
        assert!(!e.to_string().is_empty());
    }
}

/// A policy file is accepted, or refused with a message that names a line.
pub(crate) fn abac(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(e) = Abac::parse(text)
    {
        let e = e.to_string();
        assert!(e.starts_with("line "), "{e}");
    }
}

fn headers(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n') {
        let Some(at) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        let name = http::HeaderName::from_bytes(&line[..at]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&line[at + 1..])) {
            headers.append(name, value);
        }
    }
    headers
}

/// An impersonated user has a name; impersonation without a user name is refused.
pub(crate) fn impersonation(data: &[u8]) {
    let headers = headers(data);
    let said = headers.keys().any(|n| is_impersonation_header(n.as_str()));
    match requested_identity(&headers) {
        Ok(Some(user)) => assert!(said && !user.name.is_empty()),
        Ok(None) => {}
        Err(status) => assert!(said && status.code == 400),
    }
}

/// A front proxy's user has a name, and its groups are those in the headers and `system:authenticated`.
pub(crate) fn request_headers(data: &[u8]) {
    let headers = headers(data);
    let Some(user) = authn::stated(&RequestHeaderNames::standard(), &headers) else {
        return;
    };
    assert!(!user.name.is_empty());
    let said = |group: &str| headers.get_all("x-remote-group").iter().any(|v| v == group);
    let (last, rest) = user.groups.split_last().expect("there is one");
    assert!(last == "system:authenticated" || said(last), "{last:?}");
    assert!(rest.iter().all(|g| !g.is_empty() && said(g)), "{rest:?}");
}

/// `whole` with a part replaced by `data`, whose first byte says where.
fn patched(whole: &[u8], data: &[u8]) -> Vec<u8> {
    let at = data.first().map_or(0, |b| usize::from(*b) * whole.len() / 256);
    let rest = data.get(1..).unwrap_or_default();
    (whole.iter().take(at))
        .chain(rest)
        .chain(whole.iter().skip(at + rest.len()))
        .copied()
        .collect()
}

/// User jane, groups dev and ops, uid u7.
const CERTIFICATE: &str = "\
MIIBtjCCAVygAwIBAgIUKxkdGnWEWEmagcwDRI3jnHTvr8wwCgYIKoZIzj0EAwIwPjEMMAoGA1UECgwDZGV2MQwwCgYDVQQKDANvcHMxDTALBg\
NVBAMMBGphbmUxETAPBgkrBgEEAYPCUwIMAnU3MCAXDTI2MTEyMDE2MDM0M1oYDzIxMjYxMDI3MTYwMzQzWjA+MQwwCgYDVQQKDANkZXYxDDAK\
BgNVBAoMA29wczENMAsGA1UEAwwEamFuZTERMA8GCSsGAQQBg8JTAgwCdTcwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARsURIDitQaA3rxH9\
VFdVFxlwifzZOhQogjT0CW82iKZVexlF69e6h1WpixE7cGr4y06jXfRlzBgSIgbbYFRO4eozYwNDATBgNVHSUEDDAKBggrBgEFBQcDAjAdBgNV\
HQ4EFgQUGHdgS49bYwiFaqcjiw6uvTzOLjQwCgYIKoZIzj0EAwIDSAAwRQIgeEgUV3m85j2mEFFMEy1ekMy6usGqCwKkyjkJVDcr+2sCIQCKgw\
t5ah4K7zJBWdZozlW66DqkAk+oapFWi1Do/OfodQ==";

/// A client certificate yields exactly the name and groups that it contains, or is refused with a message.
/// The input is tried as the whole certificate, and as a replacement for a part of a valid one.
pub(crate) fn client_certificate(data: &[u8]) {
    let whole = STANDARD.decode(CERTIFICATE).expect("it is base64");
    let patched = patched(&whole, data);
    for der in [data, &whole, &patched] {
        match authn::user_of(&der.to_vec().into()) {
            Ok(Some(user)) => {
                assert!(!user.name.is_empty() && user.groups.iter().any(|g| g.starts_with("system:")));
                let holds = |text: &str| der.windows(text.len()).any(|w| w == text.as_bytes());
                assert!(holds(&user.name), "{:?}", user.name);
            }
            Ok(None) => {}
            Err(refused) => assert!(!refused.0.is_empty()),
        }
        let named = !authn::common_name(&der.to_vec().into()).is_empty();
        assert!(named || !matches!(authn::user_of(&der.to_vec().into()), Ok(Some(_))));
    }
}

/// User jane, group demo, with a DNS name and an address.
const REQUEST: &str = "\
MIIBCzCBsQIBADAeMQ0wCwYDVQQKDARkZW1vMQ0wCwYDVQQDDARqYW5lMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAErGBaFWVn9Uaup0RQEJ\
GaPH+2p3znvNEcWXUuZknQWiOcQqR8lrBwTGBmu/iMaGEzfCckJyrZFY369mr3qNAX76AxMC8GCSqGSIb3DQEJDjEiMCAwHgYDVR0RBBcwFYIN\
YS5leGFtcGxlLmNvbYcECgAAATAKBggqhkjOPQQDAgNJADBGAiEA7b+IfRl33thBbThEC0y7+9H5Daoxu5TLX6dRcXnDAXECIQDGyTWifpsHGx\
3WkkatiquyNXoGEWBl33Z9W8yIQK90IA==";

/// A certificate signing request is accepted, or refused with a message. Accepted values occur literally in
/// the request, and changing any byte invalidates the signature. The input is tried as the whole text, and as
/// a replacement for a part of a valid request.
pub(crate) fn signing_request(data: &[u8]) {
    let whole = STANDARD.decode(REQUEST).expect("it is base64");
    let patched = patched(&whole, data);
    for der in [&whole, &patched] {
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(der)
        );
        match CertificateRequest::from_pem(pem.as_bytes()) {
            Ok(request) => {
                assert_eq!(*der, whole, "another request has another signature");
                assert_eq!(request.subject.organizations(), ["demo"]);
            }
            Err(why) => assert!(*der != whole && !why.to_string().is_empty()),
        }
    }
    if let Err(why) = CertificateRequest::from_pem(data) {
        assert!(!why.to_string().is_empty());
    }
    for der in [
        data,
        &tlv(0x30, &tlv(0x31, data)),
        &tlv(0x30, &tlv(0x31, &tlv(0x30, data))),
    ] {
        if let Ok(name) = Name::parse(der) {
            assert!(name.organizations().iter().all(|o| !o.contains('\0')));
        }
    }
}

/// Encodes a DER element of up to 64 KiB.
fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    let header = match body.len() {
        0..=0x7f => vec![tag, low],
        0x80..=0xff => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [&header, body].concat()
}

/// A rule survives a round trip.
pub(crate) fn rule(data: &[u8]) {
    if let Ok(v) = json::decode(data) {
        let rule = PolicyRule::parse(&v);
        assert_eq!(PolicyRule::parse(&rule.to_value()), rule);
    }
}
