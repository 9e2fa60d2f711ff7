//! One `host:port`: checking out connections, and when to dial another one.
//!
//! Entry points: [`Host::try_stream`] for the common case of a multiplexed connection, [`Host::checkout`] for
//! all others. `connection` dials and drives connections, `pool` holds them, `connection_limits` has the limits,
//! `health` the outcomes.

mod connection;
mod pool;

pub(super) use connection::with_connect_timeout;

use super::connection_limits::{self, ConnectionLimiter, ConnectionLimits, ConnectionPermit};
use super::health::{Health, InFlight};
use super::http2::Stream;
use super::probe::{ProbeRequest, ProbeState};
use super::state::EndpointState;
use super::{FailureHook, Transport};
use crate::proxy::outbound::Outbound;
use crate::proxy::target::Socket;
use crate::proxy::tcp::DialError;
use crate::proxy::tls::ClientTls;
use crate::request::Body;
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::clients::ClientRequestMetrics;
use http::HeaderValue;
use http::uri::Authority;
use hyper::client::conn::http1;
use pool::{Dialing, Pool};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often a connection's task prunes idle connections and runs the keepalive.
const CHECK: Duration = Duration::from_secs(1);
/// How long an HTTP/1.1 connection is kept when its response has ended before the request was sent whole:
/// Go's `maxWriteWaitBeforeConnReuse` in `net/http/transport.go`.
const UPLOAD_GRACE: Duration = Duration::from_millis(50);

/// Connections to one address, under one TLS configuration.
pub(super) struct Host {
    /// `host:port`, or the URL of a Unix socket.
    pub(super) address: Arc<str>,
    /// `:authority` and `Host` as the backend sees them.
    pub(super) authority: Authority,
    pub(super) value: HeaderValue,
    tls: Arc<ClientTls>,
    outbound: Arc<Outbound>,
    pub(super) tasks: TaskGroup,
    pub(super) in_flight: InFlight,
    pub(super) health: Health,
    pub(super) probe_state: ProbeState,
    pub(super) probe_request: Arc<ProbeRequest>,
    pub(super) counts: Option<ClientRequestMetrics>,
    on_failure: Option<FailureHook>,
    socket: Option<Socket>,
    connect_timeout: Option<Duration>,
    limits: ConnectionLimits,
    limiter: Arc<ConnectionLimiter>,
    pool: Mutex<Pool>,
}

/// The resource available for a request.
enum Checkout {
    /// A stream on an existing HTTP/2 connection.
    Stream(Stream),
    /// An idle HTTP/1.1 connection.
    Idle(http1::SendRequest<Body>),
    /// A permit to dial a connection for this request alone.
    DialPermit(ConnectionPermit),
    /// A dial in progress, which all waiting requests share.
    Dialing(Dialing),
    /// The connection limit is reached.
    Full,
}

/// Why no connection could be checked out.
#[derive(Debug)]
pub(super) enum NoConnection {
    Dial(DialError),
    /// The limit on connections or on waiting requests is reached.
    Full,
}

impl From<DialError> for NoConnection {
    fn from(e: DialError) -> Self {
        Self::Dial(e)
    }
}

/// A connection checked out for one request.
pub(super) enum Lease {
    Http2(Stream),
    Http1 {
        sender: http1::SendRequest<Body>,
        reused: bool,
    },
}

impl Lease {
    /// Fires when the connection misses a ping; `None` for HTTP/1.1, which has no pings.
    pub(super) fn ping_missed(&self) -> Option<Signal> {
        match self {
            Self::Http2(stream) => Some(stream.ping_missed()),
            Self::Http1 { .. } => None,
        }
    }
}

// === impl Host ===

impl Host {
    /// An address of `transport`. `names` is its name as the backend sees it.
    pub(super) fn new(address: Arc<str>, names: (Authority, HeaderValue), transport: &Transport) -> Self {
        let options = &transport.options;
        let endpoint = options.target.as_ref().and_then(|t| t.endpoint(&address));
        Self {
            socket: endpoint.and_then(|p| p.socket.clone()),
            connect_timeout: options.timeouts.connect,
            address,
            authority: names.0,
            value: names.1,
            tls: transport.tls.clone(),
            outbound: transport.outbound.clone(),
            tasks: transport.tasks.clone(),
            in_flight: InFlight::default(),
            health: Health::default(),
            probe_state: ProbeState::default(),
            probe_request: transport.probe_request.clone(),
            counts: transport.counts.clone(),
            on_failure: transport.on_failure.clone(),
            limits: transport.limits,
            limiter: Arc::default(),
            pool: Mutex::new(Pool::new()),
        }
    }

    /// Records that an exchange with this address failed.
    pub(super) fn failed(&self, why: &str) {
        self.health.failed(why);
        self.report_failure();
    }

    fn report_failure(&self) {
        if let Some(report) = &self.on_failure {
            report();
        }
    }

    /// Checks out an existing or new connection. Requests that are not `bounded` ignore the limits: probes
    /// decide whether traffic is routed at all, so traffic must not starve them.
    ///
    /// # Cancel safety
    /// Cancel safe. A shared dial continues for the other requests; a dial for this request alone ends.
    pub(super) async fn checkout(self: &Arc<Self>, bounded: bool) -> Result<Lease, NoConnection> {
        let limits = self.limits(bounded);
        let mut queued = None;
        // Boxed on the rare path that waits: `Notified` must be pinned, and is large.
        let mut armed: Option<Pin<Box<Notified<'_>>>> = None;
        let mut until = None;
        // Each round looks at the pool again, since other requests may have taken what woke this one.
        loop {
            match self.try_checkout(limits.connections) {
                Checkout::Stream(stream) => return Ok(Lease::Http2(stream)),
                Checkout::Idle(mut sender) => {
                    // Ready at once, or once the end of the previous response is read. An error means that it
                    // closed: look again.
                    if sender.ready().await.is_ok() {
                        return Ok(Lease::Http1 { sender, reused: true });
                    }
                }
                // Counts the request as waiting before it dials or waits. The permit of this round is
                // released again: the next one takes another permit, and finds a shared dial in the pool.
                _ if queued.is_none() => {
                    queued = Some(self.limiter.wait(limits.waiting).ok_or(NoConnection::Full)?);
                }
                Checkout::DialPermit(open) => {
                    // Boxed: a handshake's future is about 8 kB, which would enlarge the future of every
                    // request.
                    let connection = Box::pin(async {
                        let dialed = self.dial().await?;
                        self.adopt(dialed, open, false).await
                    });
                    if let Some(sender) = connection.await? {
                        return Ok(Lease::Http1 { sender, reused: false });
                    }
                }
                Checkout::Dialing(mut dialing) => {
                    let outcome = match dialing.wait_for(Option::is_some).await {
                        Ok(outcome) => outcome.clone(),
                        // The dial's task was not spawned, or was cancelled, because the group is stopping.
                        Err(_) => Some(Err(DialError("dial aborted".into()))),
                    };
                    // Success reserves nothing for this request: the next round competes for the new
                    // connection's streams.
                    if let Some(Err(e)) = outcome {
                        return Err(e.into());
                    }
                }
                Checkout::Full => match armed.take() {
                    // Register for the notification first, then look again: otherwise
                    // one sent in between would be lost.
                    None => {
                        let mut bell = Box::pin(self.limiter.freed().notified());
                        bell.as_mut().enable();
                        armed = Some(bell);
                    }
                    Some(bell) => {
                        // One deadline for the whole wait: a request after a spurious wake-up must not begin
                        // anew.
                        let until =
                            *until.get_or_insert_with(|| Instant::now() + connection_limits::MAX_CONNECTION_WAIT);
                        let rung = tokio::time::timeout_at(until, bell).await;
                        rung.map_err(|_| NoConnection::Full)?;
                    }
                },
            }
        }
    }

    fn limits(&self, bounded: bool) -> ConnectionLimits {
        match bounded {
            true => self.limits,
            false => ConnectionLimits {
                connections: usize::MAX,
                waiting: usize::MAX,
            },
        }
    }

    /// Takes a stream on an existing connection without waiting. In the common case there is one, and
    /// [`Host::checkout`] is not needed.
    pub(super) fn try_stream(self: &Arc<Self>, bounded: bool) -> Option<Stream> {
        self.stream(&mut self.lock(), self.limits(bounded).connections)
    }

    fn stream(self: &Arc<Self>, s: &mut Pool, most: usize) -> Option<Stream> {
        let stream = s.free_stream()?;
        // A name with several addresses gets a connection to each in time, so that requests reach all of
        // them.
        if s.wants_to_spread()
            && let Some(open) = self.limiter.open(most)
        {
            // Also set if the dial fails, so that there is at most one attempt per second.
            s.spread_at = Instant::now() + CHECK;
            self.shared_dial(s, open, true);
        }
        Some(stream)
    }

    /// Looks for a connection for one more request.
    fn try_checkout(self: &Arc<Self>, most: usize) -> Checkout {
        let mut s = self.lock();
        if let Some(stream) = self.stream(&mut s, most) {
            return Checkout::Stream(stream);
        }
        if let Some(sender) = s.free_connection() {
            return Checkout::Idle(sender);
        }
        // An HTTP/1.1 connection serves one request, so sharing its dial would make the others wait in vain.
        if !s.alone
            && let Some(dialing) = &s.dialing
        {
            return Checkout::Dialing(dialing.clone());
        }
        match self.limiter.open(most) {
            None => Checkout::Full,
            Some(open) if s.alone => Checkout::DialPermit(open),
            Some(open) => Checkout::Dialing(self.shared_dial(&mut s, open, false)),
        }
    }

    /// Starts a dial in its own task, so that the client that caused it may disconnect without failing the
    /// others.
    fn shared_dial(self: &Arc<Self>, s: &mut Pool, open: ConnectionPermit, spreading: bool) -> Dialing {
        let (tell, dialing) = watch::channel(None);
        s.dialing = Some(dialing.clone());
        let host = self.clone();
        let started = self.tasks.spawn("dial a backend", async move {
            let outcome = match host.dial().await {
                Ok(dialed) => host.adopt(dialed, open, spreading).await,
                Err(e) => Err(e),
            };
            // The first HTTP/1.1 connection of an address comes from a shared dial: it goes to whichever
            // request looks first.
            let outcome = outcome.map(|http1| {
                if let Some(sender) = http1 {
                    host.give_back(sender);
                }
            });
            // Cleared before the outcome is published: a woken request must not find this dial again, and
            // loop on it.
            host.lock().dialing = None;
            tell.send_replace(Some(outcome));
        });
        if !started {
            s.dialing = None;
        }
        dialing
    }

    /// Returns an HTTP/1.1 connection whose response has ended to the pool.
    pub(super) fn give_back(&self, sender: http1::SendRequest<Body>) {
        // A connection that is not kept ends, and its permit wakes a waiting request instead.
        if !sender.is_closed() && self.lock().put_idle(sender) {
            self.limiter.free();
        }
    }

    /// Like [`Host::give_back`], for a response that ended before the request was sent whole. If the rest is
    /// not sent within [`UPLOAD_GRACE`], the connection is not reused and closes after the upload.
    pub(super) fn give_back_after_upload(self: &Arc<Self>, mut sender: http1::SendRequest<Body>) {
        let host = Arc::downgrade(self);
        self.tasks.spawn_until_stopped("end of an upload", async move {
            if let Ok(Ok(())) = tokio::time::timeout(UPLOAD_GRACE, sender.ready()).await
                && let Some(host) = host.upgrade()
            {
                host.give_back(sender);
            }
        });
    }

    /// Removes the HTTP/2 connection of this stream from the pool.
    pub(super) fn forget(&self, stream: &Stream) {
        self.lock().drop_http2(|c| stream.is_on(c));
    }

    pub(super) fn close_idle(&self) {
        self.lock().clear();
    }

    pub(super) fn state(&self) -> EndpointState {
        let (counts, dialing) = {
            let s = self.lock();
            (s.counts(), s.dialing.is_some())
        };
        EndpointState {
            address: self.address.to_string(),
            under_way: self.in_flight.now(),
            http2_connections: counts.http2,
            http2_streams: counts.streams,
            idle_http1_connections: counts.idle,
            dialing,
            connections: self.limiter.connections(),
            waiting: self.limiter.waiting(),
            failures_in_a_row: self.health.failures(),
            was_ejected: self.health.was_ejected(),
            ejected_for: self.health.ejected_for(),
            last_failure: self.health.last_failure(),
        }
    }

    /// Whether nothing is lost with it: there is no request, no connection and no recent ejection.
    pub(super) fn is_unused(self: &Arc<Self>) -> bool {
        // Requests, dials and probes have references besides the transport's. A connection counts as open from
        // before its dial until its task ends; idle ones end after the pool's idle timeout.
        Arc::strong_count(self) == 1 && self.limiter.connections() == 0 && self.health.may_be_forgotten()
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }
}
