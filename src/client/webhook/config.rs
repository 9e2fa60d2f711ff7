//! The `clientConfig` of a webhook: validation when it is written ([`validate`]), parsing when it is used
//! ([`WebhookConfig::parse`]). Upstream: `k8s.io/apiserver/pkg/util/webhook/validation.go` and `client.go`.

use super::error::{ConfigError, UnusableConfig};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{dns1123_subdomain, net};
use crate::apimachinery::value::{Str, Value};
use crate::request::go_url;
use base64::Engine as _;
use bytes::Bytes;

const DEFAULT_PORT: u16 = 443;

/// Where a webhook is, and which certificate authorities vouch for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WebhookConfig {
    /// Where the webhook is called.
    pub target: Target,
    /// CA certificates in PEM; empty for those of the system.
    pub ca_bundle: Bytes,
}

/// The server of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// A URL, which is called directly.
    Url(http::Uri),
    /// A Service, whose address is looked up for each connection.
    Service {
        /// The namespace of the Service.
        namespace: Str,
        /// The name of the Service.
        name: Str,
        /// The path, which may be empty.
        path: Str,
        /// The port of the Service.
        port: u16,
    },
}

impl WebhookConfig {
    /// Reads a valid `clientConfig`.
    ///
    /// # Errors
    /// [`UnusableConfig`], for one that was stored without validation.
    pub(crate) fn parse(config: &Value) -> Result<Self, UnusableConfig> {
        let target = match (config.get("url").as_str(), config.get("service")) {
            (Some(url), _) => {
                let uri: http::Uri = url.parse().map_err(|source| ConfigError::Url {
                    url: url.to_owned(),
                    source,
                })?;
                if uri.scheme_str() != Some("https") || uri.host().is_none() {
                    return Err(ConfigError::NotHttps(url.to_owned()).into());
                }
                Target::Url(uri)
            }
            (None, Value::Null) => return Err(ConfigError::NoTarget.into()),
            (None, service) => Target::Service {
                namespace: service.str_at(&["namespace"]).into(),
                name: service.str_at(&["name"]).into(),
                path: service.str_at(&["path"]).into(),
                port: service
                    .get("port")
                    .as_i64()
                    // Out of range only in an object that was stored without validation.
                    .and_then(|p| p.try_into().ok())
                    .unwrap_or(DEFAULT_PORT),
            },
        };
        let bundle = base64::engine::general_purpose::STANDARD.decode(config.str_at(&["caBundle"]));
        let bundle = bundle.map_err(ConfigError::Base64)?;
        Ok(Self {
            target,
            // As upstream, only blanks are the same as nothing.
            ca_bundle: match bundle.iter().all(u8::is_ascii_whitespace) {
                true => Bytes::new(),
                false => bundle.into(),
            },
        })
    }
}

impl Target {
    /// The host that the certificate must be valid for.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Url(uri) => {
                let host = uri.host().unwrap_or_default();
                // A certificate names an IPv6 address without the brackets of the URL.
                host.trim_start_matches('[').trim_end_matches(']').to_owned()
            }
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// `host:port`, without the port if the URL has none.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Url(uri) => uri.authority().map_or_else(String::new, |a| a.as_str().to_owned()),
            Self::Service { port, .. } => format!("{}:{port}", self.host()),
        }
    }

    /// `host:port`, as the users of a kubeconfig are named.
    pub(crate) fn host_and_port(&self) -> String {
        match self {
            Self::Url(uri) if uri.port().is_none() => format!("{}:{DEFAULT_PORT}", self.authority()),
            _ => self.authority(),
        }
    }

    /// The path that is called, without the query.
    pub(crate) fn path(&self) -> String {
        let path = match self {
            Self::Url(uri) => uri.path(),
            Self::Service { path, .. } => path,
        };
        format!("/{}", path.strip_prefix('/').unwrap_or(path))
    }

    /// The URL that is called, without the query.
    pub(crate) fn url(&self) -> String {
        format!("https://{}{}", self.authority(), self.path())
    }
}

/// Validates a `clientConfig`: exactly one of a URL and a Service.
pub(crate) fn validate(out: &mut ErrorList, config: &Value, at: &FieldPath) {
    let (url, service) = (config.get("url").as_str(), config.get("service"));
    match (url, service.is_null()) {
        (None, true) | (Some(_), false) => {
            out.push(FieldError::required(at, "exactly one of url or service is required"));
        }
        (Some(url), true) => validate_url(out, url, &at.child("url")),
        (None, false) => validate_service(out, service, &at.child("service")),
    }
}

fn validate_service(out: &mut ErrorList, service: &Value, at: &FieldPath) {
    // An upstream quirk: a missing name is reported at `namespace`, and vice versa.
    for (key, other) in [("namespace", "name"), ("name", "namespace")] {
        if service.str_at(&[key]).is_empty() {
            out.push(FieldError::required(&at.child(other), ""));
        }
    }
    let port = service.get("port").as_i64().unwrap_or(DEFAULT_PORT.into());
    for why in net::port(port) {
        out.push(FieldError::invalid(
            &at.child("port"),
            port,
            format!("port is not valid: {why}"),
        ));
    }
    if let Some(path) = service.get("path").as_str() {
        validate_path(out, path, &at.child("path"));
    }
}

fn validate_url(out: &mut ErrorList, url: &str, at: &FieldPath) {
    const FORM: &str = "; desired format: https://host[/path]";
    if let Some(why) = go_url::parse_error(url) {
        out.push(FieldError::required(
            at,
            format!("url must be a valid URL: {why}{FORM}"),
        ));
        return;
    }
    // Go parses URLs that the HTTP library rejects, so the parts are split here.
    let (head, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (head, query) = head.split_once('?').unwrap_or((head, ""));
    let (scheme, rest) = head
        .split_once(':')
        .filter(|(s, _)| go_url::is_scheme(s))
        .unwrap_or(("", head));
    let authority = rest.strip_prefix("//").unwrap_or("").split('/').next().unwrap_or("");
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    // Go lower-cases the scheme.
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        out.push(FieldError::invalid(at, scheme.as_str(), why));
    }
    if host.is_empty() {
        out.push(FieldError::invalid(at, "", format!("host must be specified{FORM}")));
    }
    let is_set = |part: &&str| !part.is_empty();
    for (part, what) in [
        // Even an empty one.
        (user, "user information is"),
        (Some(fragment).filter(is_set), "fragments are"),
        (Some(query).filter(is_set), "query parameters are"),
    ] {
        if let Some(part) = part {
            out.push(FieldError::invalid(
                at,
                part,
                format!("{what} not permitted in the URL"),
            ));
        }
    }
}

fn validate_path(out: &mut ErrorList, path: &str, at: &FieldPath) {
    if path.is_empty() || path == "/" {
        return;
    }
    if path == "//" {
        out.push(FieldError::invalid(at, path, "segment[0] may not be empty"));
        return;
    }
    if !path.starts_with('/') {
        out.push(FieldError::invalid(at, path, "must start with a '/'"));
    }
    // As upstream, drop the first character even if it is not a slash.
    let mut trimmed = path.chars();
    trimmed.next();
    let trimmed = trimmed.as_str();
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    for (i, segment) in trimmed.split('/').enumerate() {
        if segment.is_empty() {
            // Built lazily: each error repeats the whole path, so many bad segments would take quadratic
            // space.
            out.push_with(|| FieldError::invalid(at, path, format!("segment[{i}] may not be empty")));
            continue;
        }
        for why in dns1123_subdomain(segment) {
            out.push_with(|| FieldError::invalid(at, path, format!("segment[{i}]: {why}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn urls_are_parsed_as_in_go() {
        let errors = |url: &str| {
            let mut out = ErrorList::new();
            validate_url(&mut out, url, &FieldPath::new("url"));
            out.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(errors("https://127.0.0.1:1/hook "), "");
        assert!(errors("https://h:x/").contains("invalid port \":x\" after host; desired format"));
        let no_url = errors("x y");
        assert!(
            no_url.contains("only allowed URL scheme") && no_url.contains("host must be specified"),
            "{no_url}"
        );
        assert_eq!(errors("HTTPS://h/"), "");
        assert!(errors("https://@h/").ends_with("Invalid value: \"\": user information is not permitted in the URL"));
        assert!(
            errors("\0").contains("Required value: url must be a valid URL: parse \"\\x00\": net/url: invalid control")
        );
        let all = errors("https://u:p@h/?a=b#c");
        let parts = ["\"u:p\": user", "\"c\": fragments", "\"a=b\": query"];
        assert!(parts.iter().all(|part| all.contains(part)), "{all}");
    }

    #[test]
    fn a_service_is_named_by_its_cluster_name() {
        let config = json!({"service": {"namespace": "n", "name": "s", "path": "/convert"}, "caBundle": "IAo="});
        let config = WebhookConfig::parse(&config).unwrap();
        assert_eq!(config.target.url(), "https://s.n.svc:443/convert");
        assert_eq!(config.target.host(), "s.n.svc");
        assert!(config.ca_bundle.is_empty(), "blanks are no certificates");
        let config = json!({"service": {"namespace": "n", "name": "s", "port": 8443}});
        let config = WebhookConfig::parse(&config).unwrap();
        assert_eq!(config.target.url(), "https://s.n.svc:8443/");
    }

    #[test]
    fn a_url_keeps_its_port_and_path() {
        for (url, called, host) in [
            ("https://127.0.0.1:1/a/b", "https://127.0.0.1:1/a/b", "127.0.0.1"),
            ("https://[::1]:1", "https://[::1]:1/", "::1"),
            ("https://x.io", "https://x.io/", "x.io"),
        ] {
            let config = WebhookConfig::parse(&json!({"url": url})).unwrap();
            assert_eq!(
                (config.target.url().as_str(), config.target.host().as_str()),
                (called, host)
            );
        }
        for wrong in [
            json!({}),
            json!({"url": "http://x"}),
            json!({"url": "https://x", "caBundle": "?"}),
        ] {
            assert!(WebhookConfig::parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_service_without_name_and_namespace_reports_them_in_upstreams_order() {
        let mut out = ErrorList::new();
        validate(&mut out, &json!({"service": {}}), &FieldPath::new("c"));
        let fields: Vec<_> = out.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["c.service.name", "c.service.namespace"]);
    }

    #[test]
    fn service_without_a_name_reports_upstreams_order() {
        let mut out = ErrorList::new();
        let config = json!({"service": {"namespace": "n", "path": "a/b"}});
        validate(&mut out, &config, &FieldPath::new("c"));
        let texts: Vec<_> = out.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "c.service.namespace: Required value",
                "c.service.path: Invalid value: \"a/b\": must start with a '/'",
                "c.service.path: Invalid value: \"a/b\": segment[0] may not be empty",
            ]
        );
    }
}
