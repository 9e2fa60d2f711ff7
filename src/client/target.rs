//! Where the backend of an APIService is, when it is no Service of the cluster: said by annotations of our own, which
//! others ignore. Read by validation, which tells what is wrong with them, and by routing, which takes what is right.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::Value;
use http::Uri;
use rustls::pki_types::ServerName;
use std::sync::Arc;

/// Comma-separated `https://host[:port]` URLs, of which each request takes one. `spec.service` must still be there, for
/// servers that do not know this annotation.
pub const URLS: &str = "torana.dev/backend-urls";
/// The name that the backends' certificates are for; needed where the URLs name several hosts.
pub const SERVER_NAME: &str = "torana.dev/backend-server-name";

const MOST_URLS: usize = 64;

/// Backends outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `host:port` of each; never empty.
    pub authorities: Arc<[Arc<str>]>,
    /// What their certificates are for.
    pub server_name: Arc<str>,
}

/// The target an object names; `None`: none, or none that is valid.
///
/// # Errors
/// What is wrong, in fields of `object`.
pub fn read(object: &Value) -> Result<Option<Target>, ErrorList> {
    let annotations = object.at(&["metadata", "annotations"]);
    let path = FieldPath::new("metadata").child("annotations");
    let (urls, name) = (annotations.get(URLS).as_str(), annotations.get(SERVER_NAME).as_str());
    let mut errors = ErrorList::new();
    let Some(urls) = urls else {
        if name.is_some() {
            errors.push(FieldError::forbidden(
                &path.key(SERVER_NAME),
                format!("may only be set together with {URLS}"),
            ));
            return Err(errors);
        }
        return Ok(None);
    };
    let at = path.key(URLS);
    if object.at(&["spec", "service"]).is_null() {
        errors.push(FieldError::forbidden(&at, "may not be set on a local APIService"));
    }
    let given: Vec<&str> = urls.split(',').map(str::trim).collect();
    if given.len() > MOST_URLS {
        errors.push(FieldError::too_many(&at, given.len(), MOST_URLS));
    }
    let mut found: Vec<(String, Arc<str>)> = Vec::new();
    for url in given {
        match one(url) {
            Err(why) => errors.push(FieldError::invalid(&at, url, why)),
            Ok(new) if found.iter().any(|(_, a)| *a == new.1) => errors.push(FieldError::duplicate(&at, url)),
            Ok(new) => found.push(new),
        }
    }
    let at = path.key(SERVER_NAME);
    if let Some(name) = name
        && ServerName::try_from(name).is_err()
    {
        errors.push(FieldError::invalid(&at, name, "must be a DNS name or an IP address"));
    }
    let first = found.first().map(|(host, _)| host.clone());
    if name.is_none() && found.iter().any(|(host, _)| Some(host) != first.as_ref()) {
        errors.push(FieldError::required(
            &at,
            "the URLs name several hosts: state what their certificates are for",
        ));
    }
    match first {
        Some(host) if errors.is_empty() => Ok(Some(Target {
            authorities: found.into_iter().map(|(_, a)| a).collect(),
            server_name: name.unwrap_or(&host).into(),
        })),
        _ => Err(errors),
    }
}

/// Host without brackets, and `host:port`.
fn one(url: &str) -> Result<(String, Arc<str>), &'static str> {
    let uri: Uri = url.parse().map_err(|_| "must be a URL such as https://host:port")?;
    if uri.scheme_str() != Some("https") {
        return Err("must begin with https://");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || url.contains('#') {
        return Err("must name a host and nothing below it");
    }
    let authority = uri.authority().ok_or("must name a host")?;
    if authority.as_str().contains('@') {
        return Err("must not hold credentials");
    }
    let port = match (
        authority.port_u16(),
        authority.port().is_some() || authority.as_str().ends_with(':'),
    ) {
        (Some(0), _) | (None, true) => return Err("must name a port between 1 and 65535, or none"),
        (Some(port), _) => port,
        (None, false) => 443,
    };
    let host = authority.host().to_ascii_lowercase();
    if host.is_empty() {
        return Err("must name a host");
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((bare, format!("{host}:{port}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    fn of(annotations: Value) -> Result<Option<Target>, String> {
        let mut v = json!({"metadata": {"name": "v1.g"}, "spec": {"service": {"namespace": "n", "name": "s"}}});
        v.set(&["metadata", "annotations"], annotations);
        read(&v).map_err(|e| aggregate(&e))
    }

    #[test]
    fn urls_become_addresses_and_a_name() {
        assert_eq!(of(json!({})), Ok(None));
        let t = of(json!({"torana.dev/backend-urls": "https://Api.example.com, https://api.example.com:8443/"}));
        let t = t.unwrap().unwrap();
        let all: Vec<&str> = t.authorities.iter().map(|a| &**a).collect();
        assert_eq!(all, ["api.example.com:443", "api.example.com:8443"]);
        assert_eq!(&*t.server_name, "api.example.com");
        let t = of(json!({"torana.dev/backend-urls": "https://[::1]:1,https://10.0.0.1",
                          "torana.dev/backend-server-name": "api.example.com"}));
        let t = t.unwrap().unwrap();
        assert_eq!((&*t.authorities[0], &*t.server_name), ("[::1]:1", "api.example.com"));
    }

    #[test]
    fn what_is_wrong_is_told_as_of_any_field() {
        let wrong = |urls: &str| of(json!({"torana.dev/backend-urls": (urls)})).unwrap_err();
        for (urls, why) in [
            ("http://a", "must begin with https://"),
            ("https://a/b", "must name a host and nothing below it"),
            ("https://u:p@a", "must not hold credentials"),
            ("https://a:0", "must name a port between 1 and 65535, or none"),
            ("https://a,https://b", "several hosts"),
            ("https://a,https://a:443", "Duplicate value"),
            ("", "must be a URL"),
        ] {
            let told = wrong(urls);
            assert!(told.contains(why), "{urls}: {told}");
            assert!(told.contains("metadata.annotations[torana.dev/backend-"), "{told}");
        }
        assert!(of(json!({"torana.dev/backend-server-name": "a"})).is_err());
    }
}
