//! Egress: direct connections, or through the HTTP proxy of the environment (`HTTPS_PROXY`, `NO_PROXY`). The
//! rules are those of Go's `net/http` and, for CIDR ranges in `NO_PROXY`, of
//! `apimachinery/pkg/util/net/http.go`.
//!
//! Entry point: [`Outbound::connect`]. `own` refuses connections to this gateway itself, `sockets` guards
//! Unix sockets.

mod own;
mod sockets;

pub(crate) use own::OwnAddress;

use super::tcp::{self, DialError, TcpConnection};
use crate::request::percent;
use base64::Engine as _;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Timeout of the proxy's response to CONNECT.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Upper limit on the size of that response's head.
const MAX_HEAD: usize = 16 << 10;

/// How outgoing connections are made. Parsed once; a connection then costs a few comparisons.
#[derive(Clone, Default)]
pub(crate) struct Outbound {
    proxy: Option<Proxy>,
    except: Vec<Except>,
    socket_dirs: Vec<PathBuf>,
    /// Where this gateway serves: connections to it are refused.
    own: Option<OwnAddress>,
    /// Static name resolution for tests.
    #[cfg(test)]
    static_names: std::collections::HashMap<String, Vec<std::net::SocketAddr>>,
}

#[derive(Clone)]
struct Proxy {
    authority: String,
    /// The value of `Proxy-Authorization`.
    credentials: Option<String>,
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Except {
    All,
    Range(IpAddr, u8),
    Address(IpAddr, Option<u16>),
    /// With a leading dot. The flag includes the domain itself, not only its subdomains.
    Domain(String, bool, Option<u16>),
}

/// Why the proxy that the environment names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidProxy {
    /// Its URL has another scheme than `http`.
    #[error("HTTPS_PROXY: {0} proxies are not supported, only http")]
    Scheme(String),
    /// Its URL has no host.
    #[error("HTTPS_PROXY: the URL has no host")]
    NoHost,
}

impl Outbound {
    #[cfg(test)]
    pub(crate) fn direct() -> Self {
        Self::default()
    }

    /// Configured by these values of `HTTPS_PROXY` and `NO_PROXY`.
    ///
    /// # Errors
    /// [`InvalidProxy`].
    pub(crate) fn from_settings(https_proxy: &str, no_proxy: &str) -> Result<Self, InvalidProxy> {
        Ok(Self {
            proxy: proxy(https_proxy.trim())?,
            except: no_proxy.split(',').filter_map(|e| except(e.trim())).collect(),
            socket_dirs: Vec::new(),
            own: None,
            #[cfg(test)]
            static_names: Default::default(),
        })
    }

    /// Configured by the environment of this process.
    ///
    /// # Errors
    /// As [`Outbound::from_settings`].
    pub(crate) fn from_environment() -> Result<Self, InvalidProxy> {
        let read = |names: [&str; 2]| {
            let set = names
                .into_iter()
                .find_map(|n| std::env::var(n).ok().filter(|v| !v.is_empty()));
            set.unwrap_or_default()
        };
        Self::from_settings(&read(["HTTPS_PROXY", "https_proxy"]), &read(["NO_PROXY", "no_proxy"]))
    }

    /// Resolves `authority` to these addresses.
    #[cfg(test)]
    pub(crate) fn with_static_names(mut self, authority: &str, addresses: &[std::net::SocketAddr]) -> Self {
        self.static_names.insert(authority.to_owned(), addresses.to_vec());
        self
    }

    /// Opens a TCP connection to `authority`. The `start`th address of the name is tried first; through a
    /// proxy, which resolves the name itself, there counts only one.
    ///
    /// # Errors
    /// [`DialError`], in Go's wording.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the attempt.
    pub(crate) async fn connect(&self, authority: &str, start: usize) -> Result<TcpConnection, DialError> {
        let Some(proxy) = self.proxy.as_ref().filter(|_| !self.is_excepted(authority)) else {
            return self.connect_directly(authority, start).await;
        };
        // The proxy resolves names, so only literal addresses can be checked here.
        if let Some(own) = authority.parse().ok().filter(|a| self.is_own(*a)) {
            return Err(own::refused(own));
        }
        // Go's prefix for errors of the connection to the proxy itself.
        let failed = |why: String| DialError(format!("proxyconnect tcp: {why}"));
        let mut tcp = tcp::connect(&proxy.authority).await.map_err(|e| failed(e.0))?;
        let asked = tokio::time::timeout(CONNECT_LIMIT, proxy.request_tunnel(&mut tcp, authority));
        match asked.await {
            Ok(Ok(())) => Ok(TcpConnection { tcp, addresses: 1 }),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(failed("i/o timeout".into())),
        }
    }

    /// Like [`Outbound::connect`], but bypasses the proxy. The addresses that are checked
    /// are those that are connected to.
    ///
    /// # Errors
    /// [`DialError`], in Go's wording.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the attempt.
    pub(crate) async fn connect_directly(&self, authority: &str, start: usize) -> Result<TcpConnection, DialError> {
        let deadline = Instant::now() + tcp::DIAL_TIMEOUT;
        let addresses = self.addresses(authority, deadline).await?;
        if let Some(own) = addresses.iter().find(|a| self.is_own(**a)) {
            return Err(own::refused(*own));
        }
        tcp::connect_any(tcp::host_of(authority), addresses, start, deadline).await
    }

    async fn addresses(&self, authority: &str, deadline: Instant) -> Result<Vec<SocketAddr>, DialError> {
        #[cfg(test)]
        if let Some(addresses) = self.static_names.get(authority) {
            return Ok(addresses.clone());
        }
        tcp::lookup(authority, deadline).await
    }

    /// Whether `authority` bypasses the proxy. Loopback always does.
    fn is_excepted(&self, authority: &str) -> bool {
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "443"));
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let host = host.to_ascii_lowercase();
        let port: Option<u16> = port.parse().ok();
        let address: Option<IpAddr> = host.parse().ok();
        // As in Go's `httpproxy`, whatever `NO_PROXY` contains.
        if host == "localhost" || address.is_some_and(|a| a.is_loopback()) {
            return true;
        }
        let same_port = |wanted: &Option<u16>| wanted.is_none_or(|w| Some(w) == port);
        self.except.iter().any(|e| match e {
            Except::All => true,
            Except::Range(of, bits) => address.is_some_and(|a| in_range(a, *of, *bits)),
            Except::Address(a, p) => address == Some(*a) && same_port(p),
            Except::Domain(domain, itself, p) => {
                same_port(p) && (host.ends_with(domain.as_str()) || (*itself && host == domain[1..]))
            }
        })
    }
}

impl Proxy {
    /// Asks the proxy for a tunnel to `authority`.
    async fn request_tunnel(&self, tcp: &mut TcpStream, authority: &str) -> Result<(), DialError> {
        let credentials = self.credentials.as_ref();
        let credentials = credentials.map_or_else(String::new, |c| format!("Proxy-Authorization: {c}\r\n"));
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{credentials}\r\n");
        let io = |e: std::io::Error| DialError(format!("proxyconnect tcp: {}", tcp::system_error("read", &e)));
        tcp.write_all(request.as_bytes()).await.map_err(io)?;
        let mut head = Vec::new();
        // Read byte by byte (a few hundred): what follows the head belongs to the TLS stream and must not be
        // consumed.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() > MAX_HEAD {
                return Err(DialError(
                    "proxyconnect tcp: net/http: server response headers exceeded the limit".into(),
                ));
            }
            head.push(tcp.read_u8().await.map_err(io)?);
        }
        let line = String::from_utf8_lossy(&head);
        let line = line.lines().next().unwrap_or("");
        let (_, status) = line.split_once(' ').unwrap_or(("", line));
        match status.split_once(' ').unwrap_or((status, "")) {
            // Go compares the code, and ignores the version and the reason.
            ("200", _) => Ok(()),
            // Go's error is the reason phrase alone.
            (code, "") => Err(DialError(format!("unknown status code {code}"))),
            (_, text) => Err(DialError(text.to_owned())),
        }
    }
}

fn proxy(value: &str) -> Result<Option<Proxy>, InvalidProxy> {
    if value.is_empty() {
        return Ok(None);
    }
    let rest = match value.split_once("://") {
        Some(("http", rest)) => rest,
        Some((scheme, _)) => return Err(InvalidProxy::Scheme(scheme.to_owned())),
        None => value,
    };
    let rest = rest.split(['/', '?', '#']).next().unwrap_or("");
    let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(u, h)| (Some(u), h));
    if host.is_empty() {
        return Err(InvalidProxy::NoHost);
    }
    // A port must be a number; anything else, such as the end of an IPv6 address, is part of the host.
    let has_port = host.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    Ok(Some(Proxy {
        authority: if has_port {
            host.to_owned()
        } else {
            format!("{host}:80")
        },
        credentials: user.map(|u| {
            let (name, password) = u.split_once(':').unwrap_or((u, ""));
            let both = format!("{}:{}", percent::decode_lossy(name), percent::decode_lossy(password));
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both))
        }),
    }))
}

fn except(entry: &str) -> Option<Except> {
    let entry = entry.to_ascii_lowercase();
    if entry.is_empty() {
        return None;
    }
    if entry == "*" {
        return Some(Except::All);
    }
    if let Some((address, bits)) = entry.split_once('/')
        && let (Ok(address), Ok(bits)) = (address.parse(), bits.parse())
    {
        return Some(Except::Range(address, bits));
    }
    // Before the split at a colon, which an IPv6 address would not survive.
    if let Ok(address) = entry.trim_start_matches('[').trim_end_matches(']').parse() {
        return Some(Except::Address(address, None));
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), Some(port.parse().ok()?)),
        None => (entry, None),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse() {
        return Some(Except::Address(address, port));
    }
    let host = host.strip_prefix('*').unwrap_or(&host);
    Some(match host.starts_with('.') {
        true => Except::Domain(host.to_owned(), false, port),
        false => Except::Domain(format!(".{host}"), true, port),
    })
}

fn in_range(a: IpAddr, of: IpAddr, bits: u8) -> bool {
    let same = |a: &[u8], b: &[u8]| {
        let whole = usize::from(bits / 8).min(a.len());
        let rest = bits % 8;
        a[..whole] == b[..whole] && (rest == 0 || whole == a.len() || (a[whole] ^ b[whole]) & !(0xff_u8 >> rest) == 0)
    };
    match (a, of) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(&a.octets(), &b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(&a.octets(), &b.octets()),
        _ => false,
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credentials.
        let proxy = self.proxy.as_ref().map(|p| p.authority.as_str());
        write!(f, "Outbound(proxy: {proxy:?}, except: {:?})", self.except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_entries_are_reached_directly() {
        let o = Outbound::from_settings(
            "http://proxy:3128",
            "10.0.0.0/9, 192.168.1.5:8443,example.com , .only-below.io,*.star.io,x.org:444",
        )
        .unwrap();
        for straight in [
            "localhost:1",
            "127.0.0.9:1",
            "[::1]:1",
            "10.1.2.3:443",
            "10.127.255.255:1",
            "192.168.1.5:8443",
            "example.com:443",
            "A.Example.com:1",
            "a.only-below.io:1",
            "b.star.io:443",
            "x.org:444",
        ] {
            assert!(o.is_excepted(straight), "{straight}");
        }
        for proxied in [
            "10.128.0.1:1",
            "192.168.1.5:443",
            "badexample.com:1",
            "only-below.io:1",
            "x.org:443",
            "[fd00::1]:443",
        ] {
            assert!(!o.is_excepted(proxied), "{proxied}");
        }
        assert!(Outbound::from_settings("p:1", "*").unwrap().is_excepted("a.b:1"));
    }

    #[test]
    fn the_proxy_url_is_parsed_as_go_does() {
        let p = proxy("http://us%40r:pw@p.example").unwrap().unwrap();
        assert_eq!(p.authority, "p.example:80");
        assert_eq!(p.credentials.as_deref(), Some("Basic dXNAcjpwdw=="));
        assert_eq!(proxy("p:3128").unwrap().unwrap().authority, "p:3128");
        assert!(proxy("").unwrap().is_none());
        assert!(proxy("socks5://p:1").is_err());
    }

    #[tokio::test]
    async fn connect_uses_the_proxy_and_reports_its_refusal() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let o = Outbound::from_settings(&format!("http://{}", listener.local_addr().unwrap()), "").unwrap();
        let served = tokio::spawn(async move {
            let mut asked = Vec::new();
            for response in ["HTTP/1.1 200 OK\r\n\r\nhi", "HTTP/1.1 403 Forbidden\r\n\r\n"] {
                let (mut tcp, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tcp.read_u8().await.unwrap());
                }
                asked.push(String::from_utf8(head).unwrap());
                tcp.write_all(response.as_bytes()).await.unwrap();
            }
            asked
        });
        let mut tcp = o.connect("backend.example:443", 0).await.unwrap().tcp;
        let mut first = [0; 2];
        tcp.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"hi", "what follows belongs to the backend");
        let refused = o.connect("backend.example:443", 0).await.err().unwrap();
        assert_eq!(refused.0, "Forbidden");
        assert_eq!(
            served.await.unwrap()[0],
            "CONNECT backend.example:443 HTTP/1.1\r\nHost: backend.example:443\r\n\r\n"
        );
    }
}
