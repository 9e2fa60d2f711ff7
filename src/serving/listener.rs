//! The listening sockets: [`bind`], whose errors name the flag to change, [`Listener::adopt`] for sockets
//! that another process opened, and an accept loop that survives temporary failures.

use super::limits::Limits;
use crate::tasks::Backoff;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Length of the kernel's queue of connections that are not accepted yet.
const BACKLOG: i32 = 1024;

/// Bound, listening sockets.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Never empty; more than one only if they were inherited.
    sockets: Vec<TcpListener>,
    local: SocketAddr,
    /// Counts accepts. The next one begins at another socket, so that a busy socket cannot starve the others.
    turn: AtomicUsize,
}

/// The socket cannot be created or bound. The message names the flag to change.
#[derive(Debug)]
pub(crate) struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ip, port) = (self.address.ip(), self.address.port());
        match self.source.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {}: the port is taken by another process; stop it or choose another with --secure-port \
                 (0 picks a free one)",
                self.address
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "cannot listen on {}: not allowed to use port {port}; choose one above 1023 with --secure-port",
                self.address
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "cannot listen on {}: {ip} is not an address of this machine; choose one that is with --bind-address",
                self.address
            ),
            _ => write!(
                f,
                "cannot listen on {} (--bind-address, --secure-port): {}",
                self.address, self.source
            ),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Binds `address`; port 0 picks a free one. `0.0.0.0` also accepts IPv6 clients if the machine has IPv6, as
/// Go does. `share_port` sets `SO_REUSEPORT`, on Linux only.
///
/// # Errors
/// [`BindError`], which names the flags to change.
pub(crate) fn bind(address: SocketAddr, share_port: bool) -> Result<Listener, BindError> {
    let fail = |source| BindError { address, source };
    let socket = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            // One dual-stack socket. Without IPv6 fall back to IPv4, but report a taken or forbidden port as
            // such.
            match open(SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())), share_port) {
                Err(e) if e.kind() != io::ErrorKind::AddrInUse && e.kind() != io::ErrorKind::PermissionDenied => {
                    open(address, share_port)
                }
                dual_stack => dual_stack,
            }
        }
        _ => open(address, share_port),
    }
    .map_err(fail)?;
    let inner = TcpListener::from_std(socket.into()).map_err(fail)?;
    let bound = inner.local_addr().map_err(fail)?;
    // As requested: the dual-stack socket itself is bound to `::`.
    let local = SocketAddr::new(
        if address.ip().is_unspecified() {
            address.ip()
        } else {
            bound.ip()
        },
        bound.port(),
    );
    Ok(Listener::new(vec![inner], local))
}

fn open(address: SocketAddr, share_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // As Go does: a restart must not wait for old connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    if share_port {
        // socket2 has the setter only behind a feature flag; tokio always has it.
        // The first socket is closed unused.
        let shared = if address.is_ipv6() {
            tokio::net::TcpSocket::new_v6()
        } else {
            tokio::net::TcpSocket::new_v4()
        }?;
        shared.set_reuseaddr(true)?;
        shared.set_reuseport(true)?;
        if address.is_ipv6() {
            SockRef::from(&shared).set_only_v6(!address.ip().is_unspecified())?;
        }
        shared.bind(address)?;
        let listening = shared.listen(BACKLOG as u32)?.into_std()?;
        return Ok(listening.into());
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

impl Listener {
    fn new(sockets: Vec<TcpListener>, local: SocketAddr) -> Self {
        Self {
            sockets,
            local,
            turn: AtomicUsize::new(0),
        }
    }

    /// Takes over sockets that listen already, at least one. The first one's address is that of the server.
    ///
    /// # Errors
    /// A socket cannot be made non-blocking, or has no address.
    pub(crate) fn adopt(sockets: Vec<std::net::TcpListener>) -> io::Result<Self> {
        let adopt = |socket: std::net::TcpListener| {
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        };
        let sockets = sockets.into_iter().map(adopt).collect::<io::Result<Vec<_>>>()?;
        let first = sockets.first().ok_or(io::ErrorKind::NotConnected)?;
        let local = first.local_addr()?;
        Ok(Self::new(sockets, local))
    }

    /// The next connection of any socket. Cancel safe: a poll that returns a connection is the last one.
    async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (ahead, behind) = {
            // The length is not 0: `bind` opens one socket, and `adopt` refuses an empty list.
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.sockets.len();
            (&self.sockets[first..], &self.sockets[..first])
        };
        std::future::poll_fn(|cx| {
            let mut polls = ahead.iter().chain(behind).map(|socket| socket.poll_accept(cx));
            polls.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// The bound address, with the actual port if 0 was requested.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts the next connection. Errors of a single connection are skipped. Errors of the whole process
    /// (no file descriptors, no memory) are retried with backoff and logged once per call.
    ///
    /// # Cancel safety
    /// Cancel safe: no accepted connection is lost.
    pub(super) async fn accept(&self, limits: &Limits) -> (TcpStream, SocketAddr) {
        // The delays of Go's `net/http.Server.Serve`.
        let mut delays = Backoff::doubling(Duration::from_millis(5), Duration::from_secs(1)).delays();
        let mut said = false;
        loop {
            let error = match self.next().await {
                Ok((stream, remote)) => {
                    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
                    match prepare(&stream, limits) {
                        Ok(()) => return (stream, remote),
                        Err(error) => {
                            tracing::debug!(%remote, %error, "connection gone before it began");
                            continue;
                        }
                    }
                }
                Err(error) => error,
            };
            if is_of_one_connection(&error) {
                tracing::debug!(%error, "connection lost while being accepted");
                continue;
            }
            if !said {
                tracing::warn!(%error, "cannot accept connections; trying again");
                said = true;
            }
            tokio::time::sleep(delays.next_delay()).await;
        }
    }
}

fn prepare(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    // As Go does on every connection.
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(limits.tcp_keepalive))
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, PermissionDenied, TimedOut,
    };
    // `PermissionDenied`: accept(2) returns EPERM if firewall rules forbid the connection.
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | PermissionDenied | TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bind_error_for_a_taken_port_names_the_flag() {
        let first = bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let taken = first.local_addr();
        assert_ne!(taken.port(), 0);
        let error = bind(taken, false).unwrap_err().to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
        assert!(error.contains("--secure-port"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[tokio::test]
    async fn ipv4_wildcard_accepts_both_address_families() {
        let listener = bind(SocketAddr::from(([0, 0, 0, 0], 0)), false).unwrap();
        assert!(listener.local_addr().is_ipv4());
        let port = listener.local_addr().port();
        let limits = Limits::default();
        let (client, (_, remote)) = tokio::join!(
            TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)),
            listener.accept(&limits)
        );
        assert_eq!(client.unwrap().local_addr().unwrap(), remote);
    }

    #[tokio::test]
    async fn adopted_sockets_are_all_accepted_from() {
        let open = || std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (one, other) = (open(), open());
        let addresses = [one.local_addr().unwrap(), other.local_addr().unwrap()];
        let listener = Listener::adopt(vec![one, other]).unwrap();
        assert_eq!(listener.local_addr(), addresses[0]);
        let limits = Limits::default();
        // The first socket always has a connection waiting, and the second one is served nevertheless.
        let _busy: Vec<_> = (0..4)
            .map(|_| std::net::TcpStream::connect(addresses[0]).unwrap())
            .collect();
        let wanted = std::net::TcpStream::connect(addresses[1]).unwrap();
        let mut accepted = Vec::new();
        for _ in 0..2 {
            accepted.push(listener.accept(&limits).await.1);
        }
        assert!(accepted.contains(&wanted.local_addr().unwrap()), "{accepted:?}");
    }

    #[tokio::test]
    async fn bind_error_for_a_foreign_address_names_the_flag() {
        let error = bind(SocketAddr::from(([203, 0, 113, 7], 0)), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("203.0.113.7") && error.contains("--bind-address"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_shared_port_can_be_bound_twice() {
        let first = bind(SocketAddr::from(([127, 0, 0, 1], 0)), true).unwrap();
        bind(first.local_addr(), true).unwrap();
    }
}
