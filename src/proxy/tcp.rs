//! Name lookup and TCP connect, and the errors of dialing in Go's words. Entry points: [`connect`] and its
//! variants; TLS is added by `dial`, and which addresses are refused is decided in `outbound`.

use super::lookups::{self, LookupError};
use rustls::{AlertDescription, Error as TlsError};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Limit for name lookup and TCP connect together, as in Go's `http.DefaultTransport`.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit per address, if the name has further ones to try.
const PER_ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a connection could not be established; clients see the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DialError(pub String);

/// A TCP connection to one of a name's addresses.
pub(crate) struct TcpConnection {
    /// The connection, with Nagle's algorithm off.
    pub tcp: TcpStream,
    /// Number of addresses there were to choose from.
    pub addresses: usize,
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
    let failed = |why: LookupError| DialError(format!("dial tcp: lookup {}: {why}", host_of(authority)));
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    let parts = authority.rsplit_once(':');
    let Some((host, port)) = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?))) else {
        return Err(failed(LookupError::NoSuchHost));
    };
    let found = lookups::system().find(host, deadline).await.map_err(failed)?;
    Ok(found.iter().map(|a| with_port(*a, port)).collect())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Connects to the first of these addresses that answers, starting at the `start`th. The error is that of the
/// first one.
pub(super) async fn connect_any(
    host: &str,
    mut addresses: Vec<SocketAddr>,
    start: usize,
    deadline: Instant,
) -> Result<TcpConnection, DialError> {
    let count = addresses.len();
    // `max`: a lookup may succeed without any address.
    addresses.rotate_left(start % count.max(1));
    let mut first_error = None;
    let mut left = addresses.len() as u32;
    for address in addresses {
        // Each address gets an equal share of the remaining time, so that a hanging one leaves time for the
        // others.
        let mut share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        left -= 1;
        // The last one may use all the time that remains.
        if left > 0 {
            share = share.min(PER_ADDRESS_TIMEOUT);
        }
        let why = match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                // As Go's dialer: a small frame must not wait for the peer's acknowledgement.
                tcp.set_nodelay(true)
                    .map_err(|e| DialError(format!("dial tcp {address}: {}", system_error("setsockopt", &e))))?;
                return Ok(TcpConnection { tcp, addresses: count });
            }
            Ok(Err(e)) => system_error("connect", &e),
            Err(_) => "i/o timeout".into(),
        };
        // As Go's dialer: the error of the first address tells more than that of the last.
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
            // In TLS 1.3 the peer's rejection of our certificate arrives only after our side of the handshake
            // is complete.
            return match e.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(TlsError::AlertReceived(alert)) => format!("remote error: tls: {}", alert_text(*alert)),
                _ => format!("{call}: {e}"),
            };
        }
    };
    format!("{call}: {text}")
}

/// A TLS alert in Go's words.
pub(super) fn alert_text(alert: AlertDescription) -> String {
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
    fn system_errors_match_gos_messages() {
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
