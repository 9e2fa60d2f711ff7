//! Parser of `torana.dev/backend-urls`: hosts reached by TLS and Unix sockets, with weights and failover
//! tiers.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use http::Uri;
use rustls::pki_types::ServerName;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bounds what one APIService can make the balancer scan per request.
const MAX_URLS: usize = 64;
const MAX_WEIGHT: u32 = 1000;
const MAX_FAILOVER: u32 = 9;
/// Longest path that fits into `sockaddr_un` on every supported system (macOS: 104 bytes with the final NUL).
const MAX_PATH: usize = 103;

/// The explicit addresses of a backend. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `host:port`, or the URL of a socket, of each endpoint, in the order of `endpoints`.
    pub addresses: Arc<[Arc<str>]>,
    /// Sorted by failover tier.
    pub endpoints: Box<[TargetEndpoint]>,
    /// The name in the backends' certificates, and the `Host` sent over sockets.
    pub server_name: Arc<str>,
}

/// One address of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetEndpoint {
    /// `host:port`, or the URL of a socket.
    pub address: Arc<str>,
    /// The host without port and brackets; `None` for a socket.
    pub host: Option<Box<str>>,
    /// The socket, if it is one.
    pub socket: Option<Socket>,
    /// Share of the requests within its tier.
    pub weight: u32,
    /// Failover tier: used while no endpoint of a lower tier is healthy.
    pub failover: u32,
}

/// A Unix socket on which a backend listens, from a URL such as `http+unix:///run/backend.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Socket {
    /// Absolute, without `.` and `..` segments.
    pub path: PathBuf,
    /// Protocol of the listener.
    pub protocol: Protocol,
    /// The user that must listen on it; `None`: this process's user or root.
    pub uid: Option<u32>,
}

/// Protocol of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TLS, with the HTTP version negotiated by ALPN.
    Tls,
    /// HTTP/1.1 without TLS (`http+unix://`).
    Http1,
    /// HTTP/2 without TLS, with prior knowledge (`h2c+unix://`).
    Http2,
}

/// Why a URL of the list is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidUrl {
    #[error("must begin with https://, https+unix://, http+unix:// or h2c+unix://")]
    Scheme,
    #[error("must be a URL such as https://host:port")]
    NotUrl,
    #[error("must name a host and nothing below it")]
    Path,
    #[error("must name a host")]
    NoHost,
    #[error("must not hold credentials")]
    Credentials,
    #[error("must name a port between 1 and 65535, or none")]
    Port,
    #[error("must name a host by a DNS name or an IP address (IPv6 in brackets)")]
    Host,
    #[error(
        "must name the absolute path of a socket, of at most {MAX_PATH} printable characters and without `.`, `..`, \
         `?`, `#` and `%`"
    )]
    Socket,
    #[error("{0} may be set once")]
    Repeated(String),
    #[error("{parameter} must be a whole number between {least} and {most}, inclusive")]
    Number { parameter: String, least: u32, most: u32 },
    #[error("uid may only be set on a socket")]
    UidOfHost,
    #[error("unknown parameter {0:?}: known are weight, failover and, of sockets, uid")]
    UnknownParameter(String),
}

impl Target {
    pub(super) fn new(mut endpoints: Vec<TargetEndpoint>, server_name: Arc<str>) -> Option<Self> {
        // `tiers` groups neighbours. The sort is stable: within a tier the order stays the administrator's.
        endpoints.sort_by_key(|p| p.failover);
        (!endpoints.is_empty()).then(|| Self {
            addresses: endpoints.iter().map(|p| p.address.clone()).collect(),
            endpoints: endpoints.into(),
            server_name,
        })
    }

    /// The endpoint with this address.
    pub fn endpoint(&self, address: &str) -> Option<&TargetEndpoint> {
        self.endpoints.iter().find(|p| *p.address == *address)
    }

    /// The index range of each failover tier, first tier first.
    pub fn tiers(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        self.endpoints
            .chunk_by(|a, b| a.failover == b.failover)
            .map(move |tier| {
                let range = start..start + tier.len();
                start = range.end;
                range
            })
    }
}

impl TargetEndpoint {
    /// Whether TLS is used, so that a certificate is verified.
    pub fn is_tls(&self) -> bool {
        self.socket.as_ref().is_none_or(|s| s.protocol == Protocol::Tls)
    }
}

/// Parses a list of URLs; reports problems in `errors`.
pub(super) fn read(urls: &str, at: &FieldPath, errors: &mut ErrorList) -> Vec<TargetEndpoint> {
    let given: Vec<&str> = urls.split(',').map(str::trim).collect();
    if given.len() > MAX_URLS {
        errors.push(FieldError::too_many(at, given.len(), MAX_URLS));
        // An annotation has room for 20,000 of them, and each is compared with all before it.
        return Vec::new();
    }
    let mut found: Vec<TargetEndpoint> = Vec::new();
    for url in given {
        match one(url) {
            Err(why) => errors.push(FieldError::invalid(at, url, why.to_string())),
            Ok(new) if found.iter().any(|p| p.address == new.address) => errors.push(FieldError::duplicate(at, url)),
            Ok(new) => found.push(new),
        }
    }
    // Failover tiers are used only after the first, which must therefore exist.
    if !found.is_empty() && found.iter().all(|p| p.failover > 0) {
        errors.push(FieldError::invalid(
            at,
            urls,
            "at least one URL must be without failover",
        ));
    }
    found
}

fn one(text: &str) -> Result<TargetEndpoint, InvalidUrl> {
    let mut parts = text.split(';').map(str::trim);
    let url = parts.next().unwrap_or("");
    let mut endpoint = match url.split_once("://") {
        Some(("http+unix", path)) => socket(url, path, Protocol::Http1)?,
        Some(("h2c+unix", path)) => socket(url, path, Protocol::Http2)?,
        Some(("https+unix", path)) => socket(url, path, Protocol::Tls)?,
        _ => host(url)?,
    };
    let mut given = Vec::new();
    for part in parts {
        // A parameter without a value fails below as a number that does not parse.
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if given.contains(&key) {
            return Err(InvalidUrl::Repeated(key.to_owned()));
        }
        given.push(key);
        let number = |most: u32, least: u32| {
            let number = value.parse().ok().filter(|n| (least..=most).contains(n));
            number.ok_or_else(|| InvalidUrl::Number {
                parameter: key.to_owned(),
                least,
                most,
            })
        };
        match (key, &mut endpoint.socket) {
            ("weight", _) => endpoint.weight = number(MAX_WEIGHT, 1)?,
            ("failover", _) => endpoint.failover = number(MAX_FAILOVER, 0)?,
            // The highest value means "no user" to the system (`(uid_t)-1`).
            ("uid", Some(socket)) => socket.uid = Some(number(u32::MAX - 1, 0)?),
            ("uid", None) => return Err(InvalidUrl::UidOfHost),
            _ => return Err(InvalidUrl::UnknownParameter(key.to_owned())),
        }
    }
    Ok(endpoint)
}

fn host(url: &str) -> Result<TargetEndpoint, InvalidUrl> {
    if url
        .split_once("://")
        .is_some_and(|(scheme, _)| !scheme.eq_ignore_ascii_case("https"))
    {
        return Err(InvalidUrl::Scheme);
    }
    let uri: Uri = url.parse().map_err(|_| InvalidUrl::NotUrl)?;
    if uri.scheme().is_none() {
        return Err(InvalidUrl::NotUrl);
    }
    // `Uri` drops a fragment, so that is looked for in the text.
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || url.contains('#') {
        return Err(InvalidUrl::Path);
    }
    let authority = uri.authority().ok_or(InvalidUrl::NoHost)?;
    // Credentials would not be sent, and everybody who may read the APIService would see them.
    if authority.as_str().contains('@') {
        return Err(InvalidUrl::Credentials);
    }
    let (host, port) = host_and_port(authority.as_str());
    // Checked digit by digit, because `parse` also accepts a plus sign.
    let port = match port.map(|digits| (digits.bytes().all(|b| b.is_ascii_digit()), digits.parse::<u16>())) {
        None => 443,
        Some((true, Ok(port @ 1..))) => port,
        Some(_) => return Err(InvalidUrl::Port),
    };
    // Names have no case: the same host in another spelling is a duplicate.
    let host = host.to_ascii_lowercase();
    let is_name = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()),
        None => ServerName::try_from(host.as_str()).is_ok(),
    };
    if !is_name {
        return Err(InvalidUrl::Host);
    }
    Ok(TargetEndpoint {
        address: format!("{host}:{port}").into(),
        host: Some(host.trim_start_matches('[').trim_end_matches(']').into()),
        socket: None,
        weight: 1,
        failover: 0,
    })
}

/// Splits at the last colon outside of an IPv6 address. `http::Uri` cannot be used: it
/// treats an invalid port as absent.
fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    let end = authority.rfind(']').map_or(0, |i| i + 1);
    match authority[end..].split_once(':') {
        Some((host, port)) => (&authority[..end + host.len()], Some(port)),
        None => (authority, None),
    }
}

fn socket(url: &str, path: &str, protocol: Protocol) -> Result<TargetEndpoint, InvalidUrl> {
    let segments = path.strip_prefix('/').unwrap_or("");
    let plain =
        |s: &str| !matches!(s, "" | "." | "..") && s.bytes().all(|b| b.is_ascii_graphic() && !b"?#%".contains(&b));
    if path.len() > MAX_PATH || !segments.split('/').all(plain) {
        return Err(InvalidUrl::Socket);
    }
    Ok(TargetEndpoint {
        address: url.into(),
        host: None,
        socket: Some(Socket {
            path: Path::new(path).to_owned(),
            protocol,
            uid: None,
        }),
        weight: 1,
        failover: 0,
    })
}
