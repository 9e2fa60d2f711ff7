//! Explicit targets: annotations of the domain `torana.dev/` that give an APIService a backend outside the
//! cluster, and options for connecting to it. Servers that do not support them ignore them; `docs/targets.md`
//! is the manual.
//!
//! Entry point: [`read`], called by validation, which reports the errors, and by routing, which uses the
//! result.

mod endpoint;
mod reference;
#[cfg(test)]
mod tests;

pub(crate) use endpoint::{Protocol, Socket, Target, TargetEndpoint};
pub(crate) use reference::{Reference, Source};

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Value};
use reference::InvalidReference;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;

/// Domain of the annotations defined by this project.
pub(crate) const DOMAIN: &str = "torana.dev/";
/// Comma-separated backend URLs; each request uses one. `spec.service` is still required, for servers that do
/// not support this annotation.
pub(crate) const URLS: &str = "torana.dev/backend-urls";
/// The name in the backends' certificates. Required if the URLs name several hosts, or none.
pub(crate) const SERVER_NAME: &str = "torana.dev/backend-server-name";
/// Where to read the CA certificates that verify the backend, instead of `spec.caBundle`.
pub(crate) const CA_FROM: &str = "torana.dev/backend-ca-from";
/// Where to read the client certificate for the backend, instead of the front-proxy's.
pub(crate) const CERTIFICATE_FROM: &str = "torana.dev/backend-client-certificate-from";
/// Limit for establishing a connection, TLS included.
pub(crate) const CONNECT_TIMEOUT: &str = "torana.dev/backend-connect-timeout";
/// Limit for the head of a response.
pub(crate) const HEADER_TIMEOUT: &str = "torana.dev/backend-header-timeout";
/// Limit for a whole response. Watches and other streams are exempt.
pub(crate) const REQUEST_TIMEOUT: &str = "torana.dev/backend-request-timeout";
/// Limit of concurrent requests. Watches and other streams are not counted.
pub(crate) const MAX_REQUESTS: &str = "torana.dev/backend-max-requests-inflight";

const KNOWN: [&str; 8] = [
    URLS,
    SERVER_NAME,
    CA_FROM,
    CERTIFICATE_FROM,
    CONNECT_TIMEOUT,
    HEADER_TIMEOUT,
    REQUEST_TIMEOUT,
    MAX_REQUESTS,
];
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const MAX_LIMIT: i64 = 1_000_000;

/// Everything that an APIService's annotations configure for its backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendOptions {
    /// Explicit addresses; `None`: the Service.
    pub target: Option<Arc<Target>>,
    /// CA certificates that verify the backend; `None`: `spec.caBundle`.
    pub ca_from: Option<Reference>,
    /// Client certificate for the backend; `None`: the front-proxy's.
    pub certificate_from: Option<Reference>,
    /// Time limits of connections, response heads and whole requests.
    pub timeouts: Timeouts,
    /// Limit of concurrent requests; `None`: the default set by flags.
    pub max_requests: Option<usize>,
}

/// Time limits for a backend; `None` where only the gateway's defaults apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// Establishing a connection, TLS included.
    pub connect: Option<Duration>,
    /// The head of a response.
    pub header: Option<Duration>,
    /// A whole response, unless it is a stream.
    pub request: Option<Duration>,
}

struct Reader<'a> {
    annotations: &'a Value,
    path: FieldPath,
    errors: ErrorList,
}

/// Parses the annotations of an APIService.
///
/// # Errors
/// All that is invalid, as field errors of `object`.
pub fn read(object: &Value) -> Result<BackendOptions, ErrorList> {
    let annotations = object.at(&["metadata", "annotations"]);
    let ours = |map: &Map| map.iter().any(|(k, _)| k.starts_with(DOMAIN));
    // The common case: an APIService without any of these costs no parsing.
    if !annotations.as_object().is_some_and(ours) {
        return Ok(BackendOptions::default());
    }
    let mut r = Reader {
        annotations,
        path: FieldPath::new("metadata").child("annotations"),
        errors: ErrorList::new(),
    };
    if object.at(&["spec", "service"]).is_null() {
        r.forbid(&KNOWN, "may not be set on a local APIService");
        return r.end(BackendOptions::default());
    }
    let backend = BackendOptions {
        target: r.target().map(Arc::new),
        ca_from: r.reference(CA_FROM, Reference::of_roots),
        certificate_from: r.reference(CERTIFICATE_FROM, Reference::of_pair),
        timeouts: Timeouts {
            connect: r.duration(CONNECT_TIMEOUT),
            header: r.duration(HEADER_TIMEOUT),
            request: r.duration(REQUEST_TIMEOUT),
        },
        max_requests: r.max_requests(),
    };
    if object.at(&["spec", "insecureSkipTLSVerify"]).as_bool() == Some(true) {
        r.forbid(
            &[URLS, CA_FROM, CERTIFICATE_FROM],
            "may not be set together with spec.insecureSkipTLSVerify: callers' identities go to verified peers only",
        );
    }
    r.end(backend)
}

/// Warnings about unknown annotations of our domain, which are ignored.
pub fn warnings(object: &Value) -> Vec<String> {
    let annotations = object.at(&["metadata", "annotations"]).as_object();
    let keys = annotations.into_iter().flat_map(Map::iter).map(|(key, _)| key);
    let unknown = keys.filter(|key| key.starts_with(DOMAIN) && !KNOWN.contains(key));
    let warnings = unknown.map(|key| {
        let path = FieldPath::new("metadata").child("annotations").key(key);
        format!(
            "{}: unknown annotation, ignored; known are {}",
            path.as_str(),
            KNOWN.join(", ")
        )
    });
    warnings.collect()
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.annotations.get(key).as_str()
    }

    fn end(self, backend: BackendOptions) -> Result<BackendOptions, ErrorList> {
        if self.errors.is_empty() {
            Ok(backend)
        } else {
            Err(self.errors)
        }
    }

    fn forbid(&mut self, keys: &[&str], why: &str) {
        let set = keys.iter().filter(|k| self.annotations.get(k).as_str().is_some());
        self.errors
            .extend(set.map(|k| FieldError::forbidden(&self.path.key(k), why)));
    }

    fn invalid(&mut self, key: &str, value: &str, why: &str) {
        let at = self.path.key(key);
        self.errors.push(FieldError::invalid(&at, value, why));
    }

    fn target(&mut self) -> Option<Target> {
        let name = self.get(SERVER_NAME);
        let at = self.path.key(SERVER_NAME);
        let Some(urls) = self.get(URLS) else {
            if name.is_some() {
                let why = format!("may only be set together with {URLS}");
                self.errors.push(FieldError::forbidden(&at, why));
            }
            return None;
        };
        if let Some(name) = name
            && ServerName::try_from(name).is_err()
        {
            self.invalid(SERVER_NAME, name, "must be a DNS name or an IP address");
        }
        let endpoints = endpoint::read(urls, &self.path.key(URLS), &mut self.errors);
        let mut hosts = endpoints.iter().filter_map(|p| p.host.as_deref());
        let first = hosts.next();
        if name.is_none() && hosts.any(|host| Some(host) != first) {
            self.errors.push(FieldError::required(
                &at,
                "the URLs name several hosts: state what their certificates are for",
            ));
        } else if name.is_none() && first.is_none() && endpoints.iter().any(TargetEndpoint::is_tls) {
            self.errors.push(FieldError::required(
                &at,
                "the URLs name no host: state what their certificates are for",
            ));
        }
        // Only sockets without TLS need no name; `localhost` becomes their `Host`.
        let server_name = name.or(first).unwrap_or("localhost").into();
        Target::new(endpoints, server_name)
    }

    fn reference(&mut self, key: &str, read: fn(&str) -> Result<Reference, InvalidReference>) -> Option<Reference> {
        let value = self.get(key)?;
        match read(value) {
            Ok(reference) => Some(reference),
            Err(why) => {
                self.invalid(key, value, &why.to_string());
                None
            }
        }
    }

    fn duration(&mut self, key: &str) -> Option<Duration> {
        let value = self.get(key)?;
        match time::parse_duration(value) {
            Ok(d) if d.is_zero() || d > MAX_TIMEOUT => {
                self.invalid(key, value, "must be greater than 0s and at most 24h");
                None
            }
            Ok(d) => Some(d),
            Err(why) => {
                self.invalid(key, value, &why.to_string());
                None
            }
        }
    }

    fn max_requests(&mut self) -> Option<usize> {
        let value = self.get(MAX_REQUESTS)?;
        let number: Option<i64> = value.parse().ok();
        let Some(number) = number.filter(|n| (1..=MAX_LIMIT).contains(n)) else {
            let why = format!("must be a whole number between 1 and {MAX_LIMIT}, inclusive");
            self.invalid(MAX_REQUESTS, value, &why);
            return None;
        };
        usize::try_from(number).ok()
    }
}
