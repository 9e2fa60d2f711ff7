//! One task per connection: TLS, then HTTP/1.1 or HTTP/2 by ALPN, until the peer, a limit or the server ends
//! it.
//!
//! The entry point is [`run`]. HTTP/1.1 is served by hyper, HTTP/2 directly on h2 ([`http2`]). [`drive`]
//! polls the protocol first, then the connection's signals and its timer. Requests set no timers of their
//! own: they leave timestamps in [`Activity`], which a single timer per connection evaluates.

mod dispatch;
mod http1;
mod http2;
mod io;

use super::activity::{Activity, TimerAction, signals};
use super::bulk::BulkTurns;
use super::fair_semaphore::FairSemaphore;
use super::limits::Limits;
use super::registry::Entry;
use super::slots::{Owner, Slot};
use super::tls::TlsConfig;
use crate::request::Handler;
use crate::request::body::BoxError;
use crate::request::informational::H1InformationalQueue;
use crate::request::peer::{ConnectionCache, PeerCertificates, RemoteAddr};
use crate::telemetry::port::PortMetrics;
use crate::telemetry::spans;
use dispatch::Dispatcher;
use http1::Http1;
use http2::Http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use io::ConnectionIo;
use rustls::server::Acceptor;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// State shared by all connections of a server.
pub(super) struct Shared {
    pub(super) tls: Arc<TlsConfig>,
    pub(super) limits: Limits,
    /// Limits the number of handshakes that compute at the same time.
    pub(super) handshakes: Arc<FairSemaphore>,
    /// Schedules large transfers, uploads included.
    pub(super) bulk: BulkTurns,
    pub(super) protocols: Protocols,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) metrics: PortMetrics,
}

/// Released when a connection ends: its registry entry and its slot under the connection limit. An upgraded
/// connection releases the entry but keeps the slot.
pub(super) struct ConnectionGuards {
    pub(super) slot: Slot,
    pub(super) entry: Entry,
}

/// An accepted connection, before its TLS handshake.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) remote: SocketAddr,
    pub(super) shared: Arc<Shared>,
    pub(super) activity: Arc<Activity>,
    pub(super) guards: ConnectionGuards,
}

/// Protocol configuration, built once.
pub(super) struct Protocols {
    http1: hyper::server::conn::http1::Builder,
    http2: h2::server::Builder,
}

impl Protocols {
    pub(super) fn new(limits: &Limits) -> Self {
        let header_bytes = limits.header_bytes as usize;
        let mut http1 = hyper::server::conn::http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // `Activity` times heads instead: hyper's timer also runs while the connection is idle, so it
            // would close keep-alive connections after 32 s, not 90 s.
            .header_read_timeout(None)
            .keep_alive(true)
            // As Go's server: a client that closes its sending side cancels its request.
            .half_close(false)
            .title_case_headers(true)
            .max_headers(limits.header_fields)
            .max_header_size(header_bytes)
            // hyper parses a head from a single buffer, which must therefore hold the largest one allowed.
            .max_buf_size((header_bytes + (16 << 10)).max(64 << 10));
        Self {
            http1,
            http2: http2::settings(limits),
        }
    }
}

/// Serves a connection until it ends.
pub(super) async fn run(connection: Connection) {
    let Connection {
        stream,
        remote,
        shared,
        activity,
        guards: ConnectionGuards { slot, entry },
    } = connection;
    let local = match stream.local_addr() {
        // An IPv4 client of the dual-stack socket connects to `::ffff:a.b.c.d`; certificates are chosen by
        // the plain address.
        Ok(local) => SocketAddr::new(local.ip().to_canonical(), local.port()),
        Err(error) => {
            tracing::debug!(%remote, %error, "connection gone before its handshake");
            return;
        }
    };
    let Some(tls) = handshake(stream, remote, local, &shared, &activity).await else {
        return;
    };
    slot.handshake_done();
    let (_, session) = tls.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    spans::record_protocol(is_http2);
    // Copied once per connection: rustls lends them only while the session is borrowed.
    let certificates = session
        .peer_certificates()
        .filter(|chain| !chain.is_empty())
        .map(|chain| PeerCertificates(Arc::new(chain.iter().map(|c| c.clone().into_owned()).collect())));
    let dispatcher = Dispatcher {
        handler: Arc::clone(&shared.handler),
        activity: Arc::clone(&activity),
        remote: RemoteAddr(remote),
        certificates,
        cache: ConnectionCache::with_observer(slot.observer()),
    };
    let io = ConnectionIo::new(tls, Arc::clone(&activity), slot, &shared.bulk);
    // HTTP/1 has a deadline for its first head from now on; HTTP/2 is covered by the idle timeout and by
    // pings.
    activity.begin(!is_http2);
    let end = if is_http2 {
        let http2 = pin!(Http2::new(
            io,
            &shared.protocols.http2,
            shared.limits.yield_after,
            &dispatcher,
        ));
        let ops = ProtocolOps {
            poll: |mut c: Pin<&mut Http2<'_, _>>, cx: &mut Context<'_>| c.poll(cx).map(|end| end.map_err(Into::into)),
            close: |mut c: Pin<&mut Http2<'_, _>>| c.close(),
            ping: |mut c: Pin<&mut Http2<'_, _>>| c.ping(&activity),
        };
        drive(http2, ops, &activity, &shared).await
    } else {
        serve_http1(io, dispatcher, &shared).await
    };
    // Past this point only an upgraded connection still holds its slot. It has no request in flight, so it is
    // marked busy here; otherwise eviction would take it for idle.
    activity.mark_busy();
    drop(entry);
    match end {
        End::Closed(Ok(())) => {}
        End::Closed(Err(error)) => tracing::debug!(%remote, error = %Chain(&*error), "connection failed"),
        End::Cut(why) => tracing::debug!(%remote, why, "connection cut"),
    }
}

async fn serve_http1(io: ConnectionIo<TlsStream<TcpStream>>, dispatcher: Dispatcher, shared: &Shared) -> End {
    let queue = Arc::<H1InformationalQueue>::default();
    dispatcher.cache.set(queue.clone());
    let io = TokioIo::new(io.with_informational_queue(queue.clone()));
    let activity = Arc::clone(&dispatcher.activity);
    let http1 = Arc::new(Http1 { dispatcher, queue });
    let service = service_fn(move |request| {
        let http1 = Arc::clone(&http1);
        async move { Ok::<_, Infallible>(http1.serve(request).await) }
    });
    let hyper = pin!(shared.protocols.http1.serve_connection(io, service).with_upgrades());
    let ops = ProtocolOps {
        poll: |c: Pin<&mut _>, cx: &mut Context<'_>| {
            Future::poll(c, cx).map(|end: hyper::Result<()>| end.map_err(Into::into))
        },
        close: |c: Pin<&mut hyper::server::conn::http1::UpgradeableConnection<_, _>>| c.graceful_shutdown(),
        ping: |_: Pin<&mut _>| {},
    };
    drive(hyper, ops, &activity, shared).await
}

/// Performs the TLS handshake within its deadline, which a shutdown brings forward. `None` if it failed,
/// timed out or was evicted.
async fn handshake(
    stream: TcpStream,
    remote: SocketAddr,
    local: SocketAddr,
    shared: &Shared,
    activity: &Activity,
) -> Option<TlsStream<TcpStream>> {
    // By the local address, which is known before the client names a host; names are looked up in the
    // handshake.
    let config = shared.tls.for_connection(local.ip());
    let work = async {
        let mut first = [0; 5];
        // Peeked, not read: if it is TLS, the acceptor needs these bytes.
        if stream.peek(&mut first).await.is_ok_and(|n| is_plain_http(&first[..n])) {
            refuse_plain_http(&stream).await;
            return Err(std::io::Error::other("plain HTTP on the TLS port"));
        }
        // The first bytes have arrived, so delays from here on are ours: eviction treats the connection as
        // busy.
        activity.mark_busy();
        let owner = Owner::of(remote.ip());
        // Read without a permit: a client that sends its hello slowly must not occupy one.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        // Permits are held while the handshake computes, not while it waits for the client. The key exchange
        // and the signature take 0.2 ms and more (RSA keys: 1 ms), so they run on a blocking thread; the
        // permits bound the number of these threads.
        let permit = shared.handshakes.acquire(&owner).await;
        let accepting = tokio::task::spawn_blocking(move || hello.into_stream(config)).await;
        let mut accepting = pin!(accepting.map_err(std::io::Error::other)?);
        drop(permit);
        loop {
            let permit = shared.handshakes.acquire(&owner).await;
            let mut polled = None;
            // A single poll per permit. If the client has to send more, the permit is released until it has.
            poll_fn(|cx| {
                polled = Some(accepting.as_mut().poll(cx));
                Poll::Ready(())
            })
            .await;
            drop(permit);
            if let Some(Poll::Ready(done)) = polled {
                return done;
            }
            next_wake().await;
        }
    };
    let mut work = pin!(work);
    let mut alarm = pin!(tokio::time::sleep(shared.limits.handshake));
    let mut draining = false;
    let done = poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        let raised = activity.signals(cx);
        // Evicted, or cut at the end of a shutdown: not a failure of the handshake, so it is not counted.
        if raised & signals::KILL != 0 {
            return Poll::Ready(None);
        }
        // Only the first signal: a later one must not extend the deadline again.
        if raised != 0 && !std::mem::replace(&mut draining, true) {
            let soon = tokio::time::Instant::now() + shared.limits.first_request;
            let deadline = alarm.deadline().min(soon);
            alarm.as_mut().reset(deadline);
        }
        alarm
            .as_mut()
            .poll(cx)
            .map(|()| Some(Err(std::io::ErrorKind::TimedOut.into())))
    });
    let error = match done.await? {
        Ok(tls) => return Some(tls),
        Err(error) => error,
    };
    shared.metrics.handshake_failed();
    tracing::debug!(%remote, %error, "TLS handshake failed");
    None
}

/// Completes when the task is polled for the second time, that is after the next wake-up.
async fn next_wake() {
    let mut is_first = true;
    poll_fn(|_| match std::mem::take(&mut is_first) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

fn is_plain_http(first: &[u8]) -> bool {
    // Go's `tlsRecordHeaderLooksLikeHTTP` (`net/http/server.go`) knows the first five; the others are further
    // methods of this API, and HTTP/2 with prior knowledge.
    matches!(
        first,
        b"GET /" | b"HEAD " | b"POST " | b"PUT /" | b"OPTIO" | b"PATCH" | b"DELET" | b"PRI *"
    )
}

/// Sends Go's response to plain HTTP on a TLS port.
async fn refuse_plain_http(stream: &TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    // Drain the request first: closing a socket with unread bytes sends a reset, which would discard the
    // response.
    let mut sink = [0; 4096];
    // At most 64 KiB, which holds any usual request: a client that sends as fast as this reads would otherwise
    // keep the reactor here.
    for _ in 0..16 {
        if !stream.try_read(&mut sink).is_ok_and(|n| n > 0) {
            break;
        }
    }
    if stream.writable().await.is_ok()
        && let Err(error) = stream.try_write(ANSWER)
    {
        tracing::trace!(%error, "the plain HTTP response could not be sent");
    }
}

enum End {
    Closed(Result<(), BoxError>),
    Cut(&'static str),
}

/// Operations on a connection, implemented per protocol.
struct ProtocolOps<P, C, A> {
    /// Drives the protocol.
    poll: P,
    /// Begins a graceful close: no new requests, ends after those in flight.
    close: C,
    /// Sends a liveness ping.
    ping: A,
}

/// Polls of a connection longer than this are counted as stalls.
const STALL: Duration = Duration::from_millis(10);

/// Polls the protocol, the signals and the timer of a connection.
///
/// The protocol comes first in every iteration, so that bytes that have already arrived are processed before
/// a limit is enforced.
async fn drive<T>(
    mut connection: Pin<&mut T>,
    ops: ProtocolOps<
        impl Fn(Pin<&mut T>, &mut Context<'_>) -> Poll<Result<(), BoxError>>,
        impl Fn(Pin<&mut T>),
        impl Fn(Pin<&mut T>),
    >,
    activity: &Activity,
    shared: &Shared,
) -> End {
    let limits = &shared.limits;
    // Only a start: the first round moves it to what `next_action` wants.
    let mut alarm = pin!(tokio::time::sleep(limits.header_read.min(limits.idle)));
    let mut closing = false;
    poll_fn(|cx| {
        loop {
            let start = Instant::now();
            let polled = (ops.poll)(connection.as_mut(), cx);
            let took = start.elapsed();
            if took > STALL {
                // Requests are timed individually; this also covers TLS and framing.
                shared.metrics.stalled(took);
                tracing::debug!(
                    milliseconds = took.as_millis() as u64,
                    "a connection blocked a runtime thread for too long"
                );
            }
            if let Poll::Ready(result) = polled {
                return Poll::Ready(End::Closed(result));
            }
            let raised = activity.signals(cx);
            if raised & signals::KILL != 0 {
                return Poll::Ready(End::Cut("evicted, or past the shutdown deadline"));
            }
            if raised != 0 && !closing && !activity.awaits_first_request(raised, limits) {
                closing = true;
                activity.begin_closing();
                (ops.close)(connection.as_mut());
                // Once more, so that a GOAWAY is written now and not at the next wake-up.
                continue;
            }
            match activity.next_action(limits) {
                TimerAction::Cut(why) => return Poll::Ready(End::Cut(why)),
                TimerAction::Close => {
                    // As a signal, so that the branch above closes, once.
                    activity.signal(signals::CLOSE);
                    continue;
                }
                TimerAction::Ping => {
                    (ops.ping)(connection.as_mut());
                    continue;
                }
                TimerAction::At(at) => {
                    // A later deadline leaves the alarm armed: firing early and re-arming is cheaper than
                    // resetting it on each poll.
                    if at < alarm.deadline() || alarm.is_elapsed() {
                        alarm.as_mut().reset(at);
                    }
                    if alarm.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    })
    .await
}

/// Displays an error and its sources on one line.
struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
