//! One task per connection: TLS, then HTTP/1.1 or HTTP/2 by ALPN, until the peer, a limit or the server ends it.
//!
//! HTTP/1.1 is hyper's; HTTP/2 is served on h2 directly ([`http2`]). The task polls the protocol first and then looks at
//! its own alarm clock and signals ([`drive`]). Nothing is timed per request: requests leave marks in [`Activity`], and
//! one timer per connection reads them.

mod activity;
mod answer;
mod http1;
mod http2;
mod io;

pub(super) use activity::{Activity, signals};

use super::bulk::BulkReads;
use super::gate::Gate;
use super::limits::Limits;
use super::peer::{ConnectionCache, PeerCertificates, RemoteAddr};
use super::registry::Entry;
use super::slots::{Owner, Slot};
use super::tls::TlsConfig;
use crate::request::Handler;
use crate::request::body::BoxError;
use crate::request::interim::Lane;
use crate::telemetry::port::PortMetrics;
use activity::Due;
use answer::Answerer;
use http1::Http1;
use http2::Http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use io::Watched;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) tls: Arc<TlsConfig>,
    pub(super) limits: Limits,
    /// Handshakes take turns on the processors.
    pub(super) handshakes: Arc<Gate>,
    /// Uploads take turns, too.
    pub(super) bulk: BulkReads,
    pub(super) protocols: Protocols,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) metrics: PortMetrics,
}

/// What a connection gives back at its end: its place among the open ones, and its slot under the cap. An upgraded
/// connection keeps only the slot.
pub(super) struct Tickets {
    pub(super) slot: Slot,
    pub(super) entry: Entry,
}

/// An accepted connection.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) remote: SocketAddr,
    pub(super) shared: Arc<Shared>,
    pub(super) activity: Arc<Activity>,
    pub(super) tickets: Tickets,
}

/// The protocols, set up once.
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
            // Ours: hyper's clock for heads runs in idle time, too, and would end a connection after 32 s, not 90.
            .header_read_timeout(None)
            .keep_alive(true)
            .half_close(false)
            .title_case_headers(true)
            .max_headers(limits.header_fields)
            .max_header_size(header_bytes)
            .max_buf_size((header_bytes + (16 << 10)).max(64 << 10));
        Self {
            http1,
            http2: http2::settings(limits),
        }
    }
}

/// Serves the connection to its end.
pub(super) async fn run(connection: Connection) {
    let Connection {
        stream,
        remote,
        shared,
        activity,
        tickets: Tickets { slot, entry },
    } = connection;
    let local = match stream.local_addr() {
        Ok(local) => SocketAddr::new(local.ip().to_canonical(), local.port()),
        Err(error) => {
            tracing::debug!(%remote, %error, "connection gone before its handshake");
            return;
        }
    };
    let Some(tls) = handshake(stream, remote, local, &shared, &activity).await else {
        return;
    };
    slot.shaken();
    let (_, session) = tls.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session
        .peer_certificates()
        .filter(|chain| !chain.is_empty())
        .map(|chain| PeerCertificates(Arc::new(chain.iter().map(|c| c.clone().into_owned()).collect())));
    let answerer = Answerer {
        handler: Arc::clone(&shared.handler),
        activity: Arc::clone(&activity),
        remote: RemoteAddr(remote),
        certificates,
        cache: ConnectionCache::with_standing(slot.standing()),
    };
    let io = Watched::new(tls, Arc::clone(&activity), slot, &shared.bulk);
    activity.begin(!is_http2);
    let end = if is_http2 {
        let http2 = pin!(Http2::new(io, &shared.protocols.http2, shared.limits.turn, &answerer,));
        let acts = Acts {
            poll: |mut c: Pin<&mut Http2<'_, _>>, cx: &mut Context<'_>| c.poll(cx).map(|end| end.map_err(Into::into)),
            close: |mut c: Pin<&mut Http2<'_, _>>| c.close(),
            ping: |mut c: Pin<&mut Http2<'_, _>>| c.ping(&activity),
        };
        drive(http2, acts, &activity, &shared).await
    } else {
        serve_http1(io, answerer, &shared).await
    };
    // Only an upgraded connection has a slot any more, and no request that would show that it is in use.
    activity.engage();
    drop(entry);
    match end {
        End::Closed(Ok(())) => {}
        End::Closed(Err(error)) => tracing::debug!(%remote, error = %Chain(&*error), "connection failed"),
        End::Cut(why) => tracing::debug!(%remote, why, "connection cut"),
    }
}

async fn serve_http1(io: Watched<TlsStream<TcpStream>>, answerer: Answerer, shared: &Shared) -> End {
    let lane = Arc::<Lane>::default();
    answerer.cache.set(lane.clone());
    let io = TokioIo::new(io.with_lane(lane.clone()));
    let activity = Arc::clone(&answerer.activity);
    let http1 = Arc::new(Http1 { answerer, lane });
    let service = service_fn(move |request| {
        let http1 = Arc::clone(&http1);
        async move { Ok::<_, Infallible>(http1.answer(request).await) }
    });
    let hyper = pin!(shared.protocols.http1.serve_connection(io, service).with_upgrades());
    let acts = Acts {
        poll: |c: Pin<&mut _>, cx: &mut Context<'_>| {
            Future::poll(c, cx).map(|end: hyper::Result<()>| end.map_err(Into::into))
        },
        close: |c: Pin<&mut hyper::server::conn::http1::UpgradeableConnection<_, _>>| c.graceful_shutdown(),
        ping: |_: Pin<&mut _>| {},
    };
    drive(hyper, acts, &activity, shared).await
}

/// The TLS handshake within its deadline; nothing where the connection is over.
async fn handshake(
    stream: TcpStream,
    remote: SocketAddr,
    local: SocketAddr,
    shared: &Shared,
    activity: &Activity,
) -> Option<TlsStream<TcpStream>> {
    let config = shared.tls.for_connection(local.ip());
    let work = async {
        let mut first = [0; 5];
        if stream.peek(&mut first).await.is_ok_and(|n| is_plain_http(&first[..n])) {
            refuse_plain_http(&stream).await;
            return Err(std::io::Error::other("plain HTTP on the TLS port"));
        }
        // The client's first bytes are here: what it waits for from now on is us.
        activity.engage();
        let owner = Owner::of(remote.ip());
        let mut accepting = pin!(TlsAcceptor::from(config).accept(stream));
        loop {
            // Only computing takes a place: waiting for the client's bytes takes none.
            let pass = shared.handshakes.pass(&owner).await;
            let mut polled = None;
            poll_fn(|cx| {
                polled = Some(accepting.as_mut().poll(cx));
                Poll::Ready(())
            })
            .await;
            drop(pass);
            if let Some(Poll::Ready(done)) = polled {
                return done;
            }
            woken().await;
        }
    };
    let mut work = pin!(tokio::time::timeout(shared.limits.handshake, work));
    let done = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => match activity.signals(cx) {
            0 => Poll::Pending,
            _ => Poll::Ready(None),
        },
    });
    let error = match done.await? {
        Ok(Ok(tls)) => return Some(tls),
        Ok(Err(error)) => error,
        Err(_) => std::io::ErrorKind::TimedOut.into(),
    };
    shared.metrics.handshake_failed();
    tracing::debug!(%remote, %error, "TLS handshake failed");
    None
}

/// Ready when the task is polled again.
async fn woken() {
    let mut is_first = true;
    poll_fn(|_| match std::mem::take(&mut is_first) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

fn is_plain_http(first: &[u8]) -> bool {
    matches!(
        first,
        b"GET /" | b"HEAD " | b"POST " | b"PUT /" | b"OPTIO" | b"PATCH" | b"DELET" | b"PRI *"
    )
}

/// Go's answer to somebody who forgot the `s` of https.
async fn refuse_plain_http(stream: &TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    // What was sent is read first: closing with unread bytes would reset the connection and lose the answer.
    let mut sink = [0; 4096];
    while stream.try_read(&mut sink).is_ok_and(|n| n > 0) {}
    if stream.writable().await.is_ok()
        && let Err(error) = stream.try_write(ANSWER)
    {
        tracing::trace!(%error, "the hint was not delivered");
    }
}

enum End {
    Closed(Result<(), BoxError>),
    Cut(&'static str),
}

/// What is done to a connection, by protocol.
struct Acts<P, C, A> {
    /// Serves on.
    poll: P,
    /// Takes no more requests, and ends after those in flight.
    close: C,
    /// Asks the peer whether it is there.
    ping: A,
}

/// The longest poll of a connection that is not reported.
const LONG: Duration = Duration::from_millis(10);

/// Polls the connection, its signals and its clock.
///
/// The protocol comes first in every round: what has arrived is worked on before any limit is looked at.
async fn drive<T>(
    mut connection: Pin<&mut T>,
    acts: Acts<
        impl Fn(Pin<&mut T>, &mut Context<'_>) -> Poll<Result<(), BoxError>>,
        impl Fn(Pin<&mut T>),
        impl Fn(Pin<&mut T>),
    >,
    activity: &Activity,
    shared: &Shared,
) -> End {
    let limits = &shared.limits;
    let mut alarm = pin!(tokio::time::sleep(limits.header_read.min(limits.idle)));
    let mut closing = false;
    poll_fn(|cx| {
        loop {
            let begun = Instant::now();
            let polled = (acts.poll)(connection.as_mut(), cx);
            let took = begun.elapsed();
            if took > LONG {
                // Requests report themselves by name; here is what else a connection does, such as TLS and framing.
                shared.metrics.stalled(took);
                tracing::debug!(
                    milliseconds = took.as_millis() as u64,
                    "a connection held a reactor thread for too long"
                );
            }
            if let Poll::Ready(result) = polled {
                return Poll::Ready(End::Closed(result));
            }
            let raised = activity.signals(cx);
            if raised & signals::KILL != 0 {
                return Poll::Ready(End::Cut("the server's time to shut down is over"));
            }
            if raised != 0 && !closing {
                closing = true;
                activity.begin_closing();
                (acts.close)(connection.as_mut());
                continue;
            }
            match activity.due(limits) {
                Due::Cut(why) => return Poll::Ready(End::Cut(why)),
                Due::Close => {
                    activity.signal(signals::CLOSE);
                    continue;
                }
                Due::Ping => {
                    (acts.ping)(connection.as_mut());
                    continue;
                }
                Due::At(at) => {
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

/// An error with its causes on one line.
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
