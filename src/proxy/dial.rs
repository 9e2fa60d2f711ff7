//! Connections to backends, with TLS. Entry points: [`dial_watched`] for pooled connections,
//! [`dial_directly`] and [`dial_socket`] for others.
//!
//! Error texts are Go's, because they reach clients and APIService conditions. Whether a proxy is used and
//! which addresses are refused is decided in [`super::outbound`]; name lookup and TCP connect are in
//! [`super::tcp`].

use super::io::{Connection, TrackedStream};
use super::outbound::Outbound;
use super::target::{Protocol, Socket};
use super::tcp::{DialError, TcpConnection, alert_text, system_error};
use super::tls::ClientTls;
use super::verify::X509Error;
use rustls::{CertificateError, Error as TlsError, InvalidMessage};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Limit for the TLS handshake, as in Go's `http.DefaultTransport`.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

// An idle peer is probed after 5 s. With the user timeout that `TrackedStream::watched` sets, a dead one is
// given up after 7 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// The ALPN protocols to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// h2, then http/1.1.
    Any,
    /// http/1.1 only.
    Http1,
}

/// A connection on which HTTP can start: TLS, if any, is established.
pub(crate) struct Dialed {
    /// The byte stream; without TLS only over a Unix socket.
    pub io: Connection,
    /// Whether HTTP/2 was negotiated.
    pub http2: bool,
    /// The peer's address, unless it is a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Number of addresses the name has.
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

/// Like [`dial_directly`], but through the proxy of the environment, if there is one, and with detection of
/// dead peers within seconds: TCP keepalive covers idle connections, [`TrackedStream::watched`]
/// unacknowledged bytes. The `start`th address of the name is tried first.
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
        // A socket has no addresses that an error could name.
        Protocol::Tls => secure(io, None, tls, offer).await,
        Protocol::Http1 => Ok(plain(io, false)),
        // h2c with prior knowledge leaves no HTTP/1.1 for upgrades.
        Protocol::Http2 if offer == Offer::Http1 => Err(DialError(format!(
            "dial unix {}: h2c+unix sockets do not support upgrades",
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
    // Read before the handshake takes the socket: Go's errors name both ends.
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
    // Go's message for a handshake without a server name.
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
    // Without ALPN the server speaks HTTP/1.1.
    let http2 = io.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Dialed {
        io: Connection::Tls(io),
        http2,
        peer: ends.map(|(_, peer)| peer),
        addresses: 1,
    })
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
