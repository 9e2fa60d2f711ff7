//! Bodies for what decides who may: the authorization configuration, ABAC policies, impersonation headers, roles.

use http::{HeaderMap, HeaderValue};
use torana::apimachinery::codec::json;
use torana::authz::abac::Abac;
use torana::authz::config;
use torana::authz::impersonation::wanted;
use torana::authz::rbac::PolicyRule;

/// The file is read or refused in words.
pub fn configuration(data: &[u8]) {
    if let Err(e) = config::parse(data) {
        assert!(!e.is_empty());
    }
}

/// A policy file is read or refused, naming a line.
pub fn abac(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(e) = Abac::parse(text)
    {
        assert!(e.starts_with("line "), "{e}");
    }
}

/// Whoever is asked for has a name; whatever is asked for without one is refused.
pub fn impersonation(data: &[u8]) {
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
    if let Ok(Some(user)) = wanted(&headers) {
        assert!(!user.name.is_empty());
    }
}

/// A rule says the same after a round trip.
pub fn rule(data: &[u8]) {
    if let Ok(v) = json::decode(data) {
        let rule = PolicyRule::parse(&v);
        assert_eq!(PolicyRule::parse(&rule.to_value()), rule);
    }
}
