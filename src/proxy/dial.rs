//! Connections to backends: name lookup, TCP and TLS. Entry points: [`dial_watched`] for pooled connections,
//! [`dial_directly`] and [`dial_socket`] for others.
//!
//! Error texts are Go's, because they reach clients and APIService conditions. Whether a proxy is used and which
//! addresses are refused is decided in [`super::outbound`].

use super::io::{Connection, TrackedStream};
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

/// Limit for name lookup and TCP connect together, as in Go's `http.DefaultTransport`.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for the TLS handshake, as in Go's `http.DefaultTransport`.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit per address, if the name has further ones to try.
const PER_ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

// An idle peer is probed after 5 s. With the user timeout that `TrackedStream::watched` sets, a dead one is given up
// after 7 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// Why a connection could not be established; the text is shown to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DialError(pub String);

/// The ALPN protocols to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// h2, then http/1.1.
    Any,
    /// http/1.1 only.
    Http1,
}

/// An established connection.
pub(crate) struct Dialed {
    /// The byte stream.
    pub io: Connection,
    /// Whether HTTP/2 was negotiated.
    pub http2: bool,
    /// The peer's address, unless it is a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Number of addresses the name has.
    pub addresses: usize,
}

/// A TCP connection to one of a name's addresses.
pub(crate) struct TcpConnection {
    /// The connection.
    pub tcp: TcpStream,
    /// Number of addresses there were to choose from.
    pub addresses: usize,
}

/// Performs the TLS handshake on a TCP connection.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt and closes the socket.
pub(crate) async fn secure_tcp(connection: TcpConnection, tls: &ClientTls, offer: Offer) -> Result<Dialed, DialError> {
    over_tcp(connection, tls, offer, TrackedStream::new).await
}

/// Connects to `authority` (`host:port`), bypassing the proxy. Fails for addresses that `outbound` refuses.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt and closes the socket.
pub(crate) async fn dial_directly(
    authority: &str,
    tls: &ClientTls,
    offer: Offer,
    outbound: &Outbound,
) -> Result<Dialed, DialError> {
    secure_tcp(outbound.connect_directly(authority, 0).await?, tls, offer).await
}

/// Like [`dial_directly`], but through the proxy of the environment, if there is one, and with detection of dead peers
/// within seconds: TCP keepalive covers idle connections, [`TrackedStream::watched`] unacknowledged bytes. The
/// `start`th address of the name is tried first.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt and closes the socket.
pub(crate) async fn dial_watched(
    authority: &str,
    tls: &ClientTls,
    offer: Offer,
    outbound: &Outbound,
    start: usize,
) -> Result<Dialed, DialError> {
    let connection = outbound.connect(authority, start).await?;
    let socket = socket2::SockRef::from(&connection.tcp);
    let alive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    // Best effort: not every system has these options, and the connection works without them.
    if let Err(e) = socket.set_tcp_keepalive(&alive) {
        tracing::debug!(%authority, "keep-alive cannot be set: {e}");
    }
    over_tcp(connection, tls, offer, TrackedStream::watched).await
}

/// Connects to a Unix socket, if `outbound` allows it.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt and closes the socket.
pub(crate) async fn dial_socket(
    socket: &Socket,
    tls: &ClientTls,
    offer: Offer,
    outbound: &Outbound,
) -> Result<Dialed, DialError> {
    let io = TrackedStream::unix(outbound.connect_socket(socket).await?);
    let plain = |io, http2| Dialed {
        io: Connection::Plain(io),
        http2,
        peer: None,
        addresses: 1,
    };
    match socket.protocol {
        Protocol::Tls => secure(io, None, tls, offer).await,
        Protocol::Http1 => Ok(plain(io, false)),
        // h2c with prior knowledge leaves no HTTP/1.1 for upgrades.
        Protocol::Http2 if offer == Offer::Http1 => Err(DialError(format!(
            "dial unix {}: h2c+unix sockets take no upgrades",
            socket.path.display()
        ))),
        Protocol::Http2 => Ok(plain(io, true)),
    }
}

async fn over_tcp(
    connection: TcpConnection,
    tls: &ClientTls,
    offer: Offer,
    io: fn(TcpStream) -> TrackedStream,
) -> Result<Dialed, DialError> {
    let TcpConnection { tcp, addresses } = connection;
    let ends = tcp.local_addr().ok().zip(tcp.peer_addr().ok());
    let dialed = secure(io(tcp), ends, tls, offer).await?;
    Ok(Dialed { addresses, ..dialed })
}

/// Performs the TLS handshake. `ends` are the local and the peer's address, for error texts.
async fn secure(
    io: TrackedStream,
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
        io: Connection::Tls(io),
        http2,
        peer: ends.map(|(_, peer)| peer),
        addresses: 1,
    })
}

/// Name lookup and TCP connect only.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt.
pub(crate) async fn connect(authority: &str) -> Result<TcpStream, DialError> {
    connect_starting_at(authority, 0).await.map(|connection| connection.tcp)
}

/// Like [`connect`], but tries the `start`th address first and then those after it.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt.
pub(crate) async fn connect_starting_at(authority: &str, start: usize) -> Result<TcpConnection, DialError> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    let addresses = lookup(authority, deadline).await?;
    connect_any(host_of(authority), addresses, start, deadline).await
}

/// Connects to the first of these addresses that answers. They result from an earlier lookup of `authority`.
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// Cancel safe: dropping the future ends the attempt.
pub(crate) async fn connect_to(authority: &str, addresses: &[SocketAddr]) -> Result<TcpConnection, DialError> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    connect_any(host_of(authority), addresses.to_vec(), 0, deadline).await
}

pub(super) fn host_of(authority: &str) -> &str {
    let (host, _) = authority.rsplit_once(':').unwrap_or((authority, ""));
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Looks up the addresses of `authority`.
pub(super) async fn lookup(authority: &str, deadline: Instant) -> Result<Vec<SocketAddr>, DialError> {
    let host = host_of(authority);
    match timeout_at(deadline, tokio::net::lookup_host(authority)).await {
        Err(_) => Err(DialError(format!("dial tcp: lookup {host}: i/o timeout"))),
        Ok(Err(_)) => Err(DialError(format!("dial tcp: lookup {host}: no such host"))),
        Ok(Ok(found)) => Ok(found.collect()),
    }
}

/// Connects to the first of these addresses that answers, starting at the `start`th. The error is that of the first
/// one.
pub(super) async fn connect_any(
    host: &str,
    mut addresses: Vec<SocketAddr>,
    start: usize,
    deadline: Instant,
) -> Result<TcpConnection, DialError> {
    let count = addresses.len();
    addresses.rotate_left(start % count.max(1));
    let mut first_error = None;
    let mut left = addresses.len() as u32;
    for address in addresses {
        // Each address gets an equal share of the remaining time, so that a hanging one leaves time for the others.
        let mut share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        left -= 1;
        if left > 0 {
            share = share.min(PER_ADDRESS_TIMEOUT);
        }
        let why = match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true)
                    .map_err(|e| DialError(format!("dial tcp {address}: {}", system_error("setsockopt", &e))))?;
                return Ok(TcpConnection { tcp, addresses: count });
            }
            Ok(Err(e)) => system_error("connect", &e),
            Err(_) => "i/o timeout".into(),
        };
        first_error.get_or_insert_with(|| DialError(format!("dial tcp {address}: {why}")));
    }
    Err(first_error.unwrap_or_else(|| DialError(format!("dial tcp: lookup {host}: no such host"))))
}

/// An I/O error in Go's wording: the system call, then the system's text.
pub(crate) fn system_error(call: &str, e: &io::Error) -> String {
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
            // In TLS 1.3 the peer's rejection of our certificate arrives only after our side of the handshake is
            // complete.
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
    fn system_errors_match_gos_texts() {
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
