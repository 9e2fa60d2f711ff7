//! A connection to a backend: name lookup, TCP, TLS, with the errors in Go's words, because they reach clients and
//! APIService conditions.

use super::io::{Io, Wire};
use super::outbound::Outbound;
use super::target::{Protocol, Socket};
use super::tls::ClientTls;
use super::verify::X509Error;
use rustls::{AlertDescription, CertificateError, Error as TlsError, InvalidMessage};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// Name lookup and TCP together.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Patience with an address where the name has others.
const IMPATIENCE: Duration = Duration::from_secs(3);

const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// Why a connection did not come about: a text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialError(pub String);

/// Which protocols to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// h2, then http/1.1.
    Any,
    /// http/1.1 only.
    Http1,
}

/// An established connection, and whether the backend chose HTTP/2.
pub struct Dialed {
    /// The stream.
    pub io: Wire,
    /// HTTP/2 was agreed on.
    pub http2: bool,
    /// The address that answered.
    pub peer: Option<SocketAddr>,
    /// How many addresses the name has.
    pub addresses: usize,
}

/// A TCP connection to one of a name's addresses.
pub struct Reached {
    /// The connection.
    pub tcp: TcpStream,
    /// How many addresses there were to choose from.
    pub addresses: usize,
}

/// Makes a TLS connection of one that was reached.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends and the socket closes.
pub async fn secure_tcp(reached: Reached, tls: &ClientTls, offer: Offer) -> Result<Dialed, DialError> {
    over_tcp(reached, tls, offer, Io::new).await
}

/// Connects to `authority` (`host:port`) without a proxy, and not where `outbound` does not let us.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends and the socket closes.
pub async fn dial_straight(
    authority: &str,
    tls: &ClientTls,
    offer: Offer,
    outbound: &Outbound,
) -> Result<Dialed, DialError> {
    secure_tcp(outbound.straight(authority, 0).await?, tls, offer).await
}

/// As [`dial_straight`], by way of the proxy of the environment where there is one, to a peer whose silence is noticed in seconds:
/// the kernel asks an idle connection after five and gives it up after seven, whatever it carries ([`Io::watched`]). Of a name's addresses the `turn`th is tried first.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends and the socket closes.
pub async fn dial_watched(
    authority: &str,
    tls: &ClientTls,
    offer: Offer,
    outbound: &Outbound,
    turn: usize,
) -> Result<Dialed, DialError> {
    let reached = outbound.connect(authority, turn).await?;
    let socket = socket2::SockRef::from(&reached.tcp);
    let alive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    // A system without these options has its own; the connection is good either way.
    if let Err(e) = socket.set_tcp_keepalive(&alive) {
        tracing::debug!(%authority, "keep-alive cannot be set: {e}");
    }
    over_tcp(reached, tls, offer, Io::watched).await
}

/// Connects to a socket of this machine, where `outbound` lets us.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends and the socket closes.
pub async fn dial_socket(
    socket: &Socket,
    tls: &ClientTls,
    offer: Offer,
    outbound: &Outbound,
) -> Result<Dialed, DialError> {
    let io = Io::unix(outbound.connect_socket(socket).await?);
    let plain = |io, http2| Dialed {
        io: Wire::Plain(io),
        http2,
        peer: None,
        addresses: 1,
    };
    match socket.protocol {
        Protocol::Tls => secure(io, None, tls, offer).await,
        Protocol::Http1 => Ok(plain(io, false)),
        // A peer that speaks HTTP/2 from the first byte has no other protocol for an upgrade.
        Protocol::Http2 if offer == Offer::Http1 => Err(DialError(format!(
            "dial unix {}: h2c+unix sockets take no upgrades",
            socket.path.display()
        ))),
        Protocol::Http2 => Ok(plain(io, true)),
    }
}

async fn over_tcp(
    reached: Reached,
    tls: &ClientTls,
    offer: Offer,
    io: fn(TcpStream) -> Io,
) -> Result<Dialed, DialError> {
    let Reached { tcp, addresses } = reached;
    let ends = tcp.local_addr().ok().zip(tcp.peer_addr().ok());
    let dialed = secure(io(tcp), ends, tls, offer).await?;
    Ok(Dialed { addresses, ..dialed })
}

/// `ends` are the addresses of ours and the peer's, where they have any.
async fn secure(
    io: Io,
    ends: Option<(SocketAddr, SocketAddr)>,
    tls: &ClientTls,
    offer: Offer,
) -> Result<Dialed, DialError> {
    let Some(name) = tls.server_name.clone() else {
        return Err(DialError(
            "tls: either ServerName or InsecureSkipVerify must be specified".into(),
        ));
    };
    let config = match offer {
        Offer::Any => tls.any.clone(),
        Offer::Http1 => tls.http1.clone(),
    };
    let handshake = TlsConnector::from(config).connect(name, io);
    let io = match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Err(_) => return Err(DialError("net/http: TLS handshake timeout".into())),
        Ok(Err(e)) => return Err(DialError(handshake_error(&e, ends))),
        Ok(Ok(io)) => io,
    };
    let http2 = io.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Dialed {
        io: Wire::Tls(io),
        http2,
        peer: ends.map(|(_, peer)| peer),
        addresses: 1,
    })
}

/// Name lookup and TCP alone.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends.
pub async fn connect(authority: &str) -> Result<TcpStream, DialError> {
    reach(authority, 0).await.map(|reached| reached.tcp)
}

/// As [`connect`]; of several addresses the `turn`th is tried first, then those behind it.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends.
pub async fn reach(authority: &str, turn: usize) -> Result<Reached, DialError> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    let addresses = lookup(authority, deadline).await?;
    reach_any(host_of(authority), addresses, turn, deadline).await
}

/// The first of these that answers. They are the addresses of `authority`, looked up before.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// When dropped, the attempt ends.
pub async fn reach_addresses(authority: &str, addresses: &[SocketAddr]) -> Result<Reached, DialError> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    reach_any(host_of(authority), addresses.to_vec(), 0, deadline).await
}

pub(super) fn host_of(authority: &str) -> &str {
    let (host, _) = authority.rsplit_once(':').unwrap_or((authority, ""));
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The addresses of `authority`.
pub(super) async fn lookup(authority: &str, deadline: Instant) -> Result<Vec<SocketAddr>, DialError> {
    let host = host_of(authority);
    match timeout_at(deadline, tokio::net::lookup_host(authority)).await {
        Err(_) => Err(DialError(format!("dial tcp: lookup {host}: i/o timeout"))),
        Ok(Err(_)) => Err(DialError(format!("dial tcp: lookup {host}: no such host"))),
        Ok(Ok(found)) => Ok(found.collect()),
    }
}

/// The first of these that answers.
pub(super) async fn reach_any(
    host: &str,
    mut addresses: Vec<SocketAddr>,
    turn: usize,
    deadline: Instant,
) -> Result<Reached, DialError> {
    let count = addresses.len();
    addresses.rotate_left(turn % count.max(1));
    let mut first_error = None;
    let mut left = addresses.len() as u32;
    for address in addresses {
        // Later addresses keep their share of the time.
        let mut share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        left -= 1;
        if left > 0 {
            share = share.min(IMPATIENCE);
        }
        let why = match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true)
                    .map_err(|e| DialError(format!("dial tcp {address}: {}", system_error("setsockopt", &e))))?;
                return Ok(Reached { tcp, addresses: count });
            }
            Ok(Err(e)) => system_error("connect", &e),
            Err(_) => "i/o timeout".into(),
        };
        first_error.get_or_insert_with(|| DialError(format!("dial tcp {address}: {why}")));
    }
    Err(first_error.unwrap_or_else(|| DialError(format!("dial tcp: lookup {host}: no such host"))))
}

/// An I/O error as Go words it: the call, then the system's text.
pub fn system_error(call: &str, e: &io::Error) -> String {
    use io::ErrorKind as K;
    let text = match e.kind() {
        K::ConnectionRefused => "connection refused",
        K::ConnectionReset => "connection reset by peer",
        K::BrokenPipe => "broken pipe",
        K::HostUnreachable => "no route to host",
        K::NetworkUnreachable => "network is unreachable",
        K::AddrNotAvailable => "cannot assign requested address",
        K::TimedOut => "connection timed out",
        K::PermissionDenied => "permission denied",
        K::NotFound => "no such file or directory",
        K::UnexpectedEof => return "EOF".into(),
        _ => {
            // With TLS 1.3 a peer refuses our certificate once we think the handshake is done.
            return match e.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(TlsError::AlertReceived(alert)) => format!("remote error: tls: {}", alert_text(*alert)),
                _ => format!("{call}: {e}"),
            };
        }
    };
    format!("{call}: {text}")
}

fn handshake_error(e: &io::Error, ends: Option<(SocketAddr, SocketAddr)>) -> String {
    let Some(tls) = e.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) else {
        return match (e.kind(), ends) {
            (io::ErrorKind::ConnectionReset, Some((l, p))) => {
                format!("read tcp {l}->{p}: {}", system_error("read", e))
            }
            _ => system_error("read", e),
        };
    };
    match tls {
        TlsError::InvalidCertificate(CertificateError::Other(other)) => {
            let text = other
                .0
                .downcast_ref::<X509Error>()
                .map_or_else(|| other.0.to_string(), |x| x.0.clone());
            format!("tls: failed to verify certificate: {text}")
        }
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "tls: first record does not look like a TLS handshake".into()
        }
        TlsError::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        other => format!("tls: {other}"),
    }
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::BadCertificate => "bad certificate".into(),
        AlertDescription::CertificateRequired => "certificate required".into(),
        AlertDescription::UnknownCA => "unknown certificate authority".into(),
        AlertDescription::CertificateExpired => "expired certificate".into(),
        AlertDescription::CertificateRevoked => "revoked certificate".into(),
        AlertDescription::CertificateUnknown => "unknown certificate".into(),
        AlertDescription::UnsupportedCertificate => "unsupported certificate".into(),
        AlertDescription::AccessDenied => "access denied".into(),
        AlertDescription::HandshakeFailure => "handshake failure".into(),
        AlertDescription::ProtocolVersion => "protocol version not supported".into(),
        AlertDescription::NoApplicationProtocol => "no application protocol".into(),
        AlertDescription::UnrecognisedName => "unrecognized name".into(),
        AlertDescription::InternalError => "internal error".into(),
        other => format!("alert({})", u8::from(other)),
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DialError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_read_as_gos() {
        let e = |k: io::ErrorKind| io::Error::from(k);
        assert_eq!(
            system_error("connect", &e(io::ErrorKind::ConnectionRefused)),
            "connect: connection refused"
        );
        assert_eq!(system_error("read", &e(io::ErrorKind::UnexpectedEof)), "EOF");
        let alert = TlsError::AlertReceived(AlertDescription::UnknownCA);
        assert_eq!(
            system_error("read", &io::Error::new(io::ErrorKind::InvalidData, alert)),
            "remote error: tls: unknown certificate authority"
        );
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let e = connect(&address.to_string()).await.unwrap_err();
        assert_eq!(e.0, format!("dial tcp {address}: connect: connection refused"));
    }
}
