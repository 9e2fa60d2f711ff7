//! Pooled connections to backends that share one TLS configuration.
//!
//! Entry points: [`Transport::choose`] picks an address, [`Transport::send_to`] sends a proxied request to
//! it. There is one [`Transport`] per set of TLS inputs and one `Host` in it per resolved `host:port`. A
//! backend that negotiates HTTP/2 gets multiplexed connections (another one when the streams of the others
//! are used up); any other gets HTTP/1.1 connections that are kept alive while idle. A task drives each
//! connection and ends when nothing refers to the connection any more, so dropping a transport closes idle
//! connections and lets requests in flight finish.
//!
//! Resolving a Service to addresses is left to the caller, dialing and TLS to [`super::dial`] and
//! [`super::tls`].

mod balance;
mod body;
mod connection_limits;
mod exchange;
mod health;
mod host;
mod http1;
mod http2;
mod probation;
mod probe;
mod replay;
mod state;
mod upload;
mod upstream_options;
mod weighted;

pub(crate) use body::BackendBody;
pub(crate) use connection_limits::ConnectionLimits;
pub(crate) use probe::ProbeRequest;
pub(crate) use state::EndpointState;
pub(crate) use upstream_options::UpstreamOptions;

use crate::proxy::outbound::Outbound;
use crate::proxy::tcp::DialError;
use crate::proxy::tls::ClientTls;
use crate::request::headers::IdentityHeaders;
use crate::request::{Body, InformationalSender};
use crate::sync::Mutex;
use crate::tasks::TaskGroup;
use crate::telemetry::clients::ClientRequestMetrics;
use exchange::{exchange, is_idempotent};
use host::{Host, Lease, NoConnection};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response};
use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Attempts for a request of which nothing was sent; any other is sent at most twice.
const MAX_ATTEMPTS: usize = 4;
/// Go's message (`golang.org/x/net/http2`), which clients see in the 503.
const GOAWAY: &str = "http2: server sent GOAWAY and closed the connection";
/// Hosts per transport from which unused ones are dropped: pods come and go, and their addresses with them.
const MAX_HOSTS: usize = 64;

/// A request to a backend. The authority comes from the resolver.
pub(crate) struct Outgoing {
    pub method: Method,
    /// Canonical path and query.
    pub target: PathAndQuery,
    /// Headers, without `Host`.
    pub headers: HeaderMap,
    pub body: Body,
}

/// Why a request got no response. `Display` is the message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// No connection could be established.
    Dial(DialError),
    /// The limits on connections or on waiting requests are reached.
    Full,
    /// The connection failed before the response's head arrived.
    Exchange(String),
    /// The response's head did not arrive within the APIService's header timeout.
    Late,
    /// The request's body could not be read from the client.
    Client(String),
}

/// Connections that share a TLS configuration.
pub(crate) struct Transport {
    tls: Arc<ClientTls>,
    outbound: Arc<Outbound>,
    tasks: TaskGroup,
    hosts: Mutex<HashMap<Arc<str>, Arc<Host>>>,
    /// Number of hosts at which unused ones are dropped next. Accessed under the lock of `hosts`.
    sweep_at: AtomicUsize,
    choices: AtomicU64,
    counts: Option<ClientRequestMetrics>,
    limits: ConnectionLimits,
    options: UpstreamOptions,
    probe_request: Arc<ProbeRequest>,
    hop: Option<HeaderValue>,
    host_name: Option<Box<str>>,
    identity: Arc<IdentityHeaders>,
    on_failure: Option<FailureHook>,
}

/// Called when an exchange with an address failed or a connection broke. Called often while a backend is
/// down.
pub(crate) type FailureHook = Arc<dyn Fn() + Send + Sync>;

impl Transport {
    /// Creates a transport without connections. The tasks of its connections belong to `tasks`.
    pub(crate) fn new(tls: ClientTls, outbound: Arc<Outbound>, tasks: TaskGroup) -> Self {
        Self {
            tls: Arc::new(tls),
            outbound,
            tasks,
            hosts: Mutex::default(),
            sweep_at: AtomicUsize::new(MAX_HOSTS),
            choices: AtomicU64::new(0),
            counts: None,
            limits: ConnectionLimits::default(),
            options: UpstreamOptions::default(),
            probe_request: Arc::default(),
            hop: None,
            host_name: None,
            identity: Arc::default(),
            on_failure: None,
        }
    }

    /// Reports failed exchanges and broken connections.
    #[must_use]
    pub(crate) fn with_failure_hook(mut self, hook: FailureHook) -> Self {
        self.on_failure = Some(hook);
        self
    }

    /// Sets the hop header that identifies this gateway replica on its own requests (loop detection).
    #[must_use]
    pub(crate) fn with_hop(mut self, hop: HeaderValue) -> Self {
        self.hop = Some(hop);
        self
    }

    /// The header value set with [`Transport::with_hop`].
    pub(crate) fn hop(&self) -> Option<&HeaderValue> {
        self.hop.as_ref()
    }

    /// Calls every address by this name, with or without a port, instead of by its address.
    #[must_use]
    pub(crate) fn with_host_name(mut self, name: &str) -> Self {
        self.host_name = Some(name.into());
        self
    }

    /// Strips the trailers in which a client could claim an identity.
    #[must_use]
    pub(crate) fn with_identity_headers(mut self, identity: Arc<IdentityHeaders>) -> Self {
        self.identity = identity;
        self
    }

    /// Sets the limits that apply to each address.
    #[must_use]
    pub(crate) fn with_limits(mut self, limits: ConnectionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the probe request that an ejected address must answer before it receives requests again.
    #[must_use]
    pub(crate) fn with_probe(mut self, probe_request: ProbeRequest) -> Self {
        self.probe_request = Arc::new(probe_request);
        self
    }

    /// Records the gateway's own requests (probes, documents) in these metrics. Proxied
    /// requests are not recorded there.
    #[must_use]
    pub(crate) fn with_metrics(mut self, counts: ClientRequestMetrics) -> Self {
        self.counts = Some(counts);
        self
    }

    /// The metrics set with [`Transport::with_metrics`].
    pub(crate) fn counts(&self) -> Option<&ClientRequestMetrics> {
        self.counts.as_ref()
    }

    /// Sends a request of the gateway itself, to which no limits apply, and waits for the head of the
    /// response. A request that cannot be sent to `first` goes to another of `endpoints`.
    ///
    /// Retries happen on another connection:
    /// - up to three times while nothing of the request was sent;
    /// - once after the backend refused it unprocessed, if its body is small and was sent whole;
    /// - once for a GET, HEAD, OPTIONS or TRACE without a body whose reused connection died, or, given
    ///   another address, whose connection missed a ping.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Cancel safety
    /// When dropped, the request is cancelled at the backend (stream reset, or connection closed).
    pub(crate) async fn send_among(
        &self,
        endpoints: &[Arc<str>],
        first: &str,
        out: Outgoing,
    ) -> Result<Response<BackendBody>, SendError> {
        self.deliver(endpoints, first, out.into(), false, None).await
    }

    /// Picks an address: the less busy of two random ones, skipping those that are ejected or on probation.
    pub(crate) fn choose<'a>(&self, endpoints: &'a [Arc<str>]) -> &'a Arc<str> {
        match endpoints {
            [] => unreachable!("a resolver gives at least one address"),
            [one] => one,
            many => self.choose_but(many, None),
        }
    }

    /// Sends a proxied request, subject to the limits, and forwards informational (1xx) responses to
    /// `informational`. If `first` cannot be reached and nothing was sent, another of `endpoints` is tried.
    /// Retries follow the rules of [`Transport::send_among`].
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Cancel safety
    /// When dropped, the request is cancelled at the backend (stream reset, or connection closed).
    pub(crate) fn send_to(
        &self,
        endpoints: &[Arc<str>],
        first: &str,
        out: Box<Outgoing>,
        informational: Option<&InformationalSender>,
    ) -> impl Future<Output = Result<Response<BackendBody>, SendError>> {
        self.deliver(endpoints, first, out, true, informational)
    }

    async fn deliver(
        &self,
        endpoints: &[Arc<str>],
        first: &str,
        mut out: Box<Outgoing>,
        bounded: bool,
        informational: Option<&InformationalSender>,
    ) -> Result<Response<BackendBody>, SendError> {
        let mut host = self.host(first)?;
        // Without a body there is nothing to record, and the wrapper would cost an allocation.
        let record = if http_body::Body::is_end_stream(&out.body) {
            None
        } else {
            let (body, record) = replay::record(std::mem::take(&mut out.body), self.identity.clone());
            out.body = body;
            Some(record)
        };
        // Before the request is consumed: whether a copy was needed shows only when it has failed.
        let mut spare = Some(replay::Head::of(&out));
        let mut next = out;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let others = endpoints.len() > 1 && attempt < MAX_ATTEMPTS;
            let found = match host.try_stream(bounded) {
                Some(stream) => Ok(Lease::Http2(stream)),
                // Boxed like every other rare path here: inline, its future would enlarge that of every
                // request.
                None => Box::pin(balance::checkout(&host, others, bounded)).await,
            };
            let lease = match found {
                Ok(lease) => lease,
                Err(why) => {
                    // Only dial errors count against health: an address at its limits is busy, not broken.
                    if let NoConnection::Dial(why) = &why {
                        host.failed(&why.0);
                    }
                    if !others {
                        return Err(why.into());
                    }
                    // Safe for any method, because nothing was sent yet.
                    host = self.another(endpoints, &host)?;
                    balance::set_forwarded_host(&host, &mut next);
                    continue;
                }
            };
            // A request on a connection that misses a ping moves to another address if it may be sent twice.
            let is_free = others && record.is_none() && spare.as_ref().is_some_and(|s| is_idempotent(s.method()));
            let ping_missed = if is_free { lease.ping_missed() } else { None };
            let outcome = {
                let mut sending = pin!(exchange(&host, lease, *next, record.as_ref(), informational));
                match ping_missed {
                    None => sending.await,
                    // Boxed: inline, it would enlarge the future of every request.
                    Some(ping_missed) => Box::pin(balance::unless_ping_missed(ping_missed, sending.as_mut())).await,
                }
            };
            let mut failure = match outcome {
                Ok(response) => {
                    // A response of any status shows that the address works.
                    host.health.succeeded();
                    return Ok(response);
                }
                Err(failure) => failure,
            };
            // A body that broke off on the client's side is not the backend's failure and must not eject its
            // address.
            if let Some(why) = record.as_ref().and_then(replay::ReplayRecord::client_error) {
                return Err(SendError::Client(why));
            }
            host.failed(&failure.text);
            next = match (failure.unsent.take(), spare.take()) {
                (Some(unsent), record) if attempt < MAX_ATTEMPTS => {
                    spare = record;
                    unsent
                }
                (None, Some(again)) if failure.may_retry(again.method(), record.is_some()) => {
                    match record
                        .as_ref()
                        .map_or(Some(Body::empty()), replay::ReplayRecord::take_body)
                    {
                        Some(body) => again.into_request(body).into(),
                        None => return Err(SendError::Exchange(failure.text)),
                    }
                }
                _ => return Err(SendError::Exchange(failure.text)),
            };
            // Elsewhere, if possible: the address that refused or lost it is probably overloaded or about to
            // end.
            if others {
                host = self.another(endpoints, &host)?;
                balance::set_forwarded_host(&host, &mut next);
            }
        }
    }

    fn another(&self, endpoints: &[Arc<str>], not: &Host) -> Result<Arc<Host>, SendError> {
        self.host(self.choose_but(endpoints, Some(&not.address)))
    }

    /// The state of each address that was used, sorted by address.
    pub(crate) fn endpoints(&self) -> Vec<EndpointState> {
        // Cloned out, so that requests need not wait while each host's state is read.
        let hosts: Vec<Arc<Host>> = self.lock().values().cloned().collect();
        let mut all: Vec<EndpointState> = hosts.iter().map(|h| h.state()).collect();
        // The map has no order; the status page has one.
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all
    }

    /// Stops using all present connections for new requests; requests in flight continue. Called after a
    /// failed probe, since a pooled connection may lead to a wrong or dead server.
    pub(crate) fn close_idle(&self) {
        let hosts: Vec<Arc<Host>> = self.lock().values().cloned().collect();
        for host in hosts {
            host.close_idle();
        }
    }

    fn host(&self, authority: &str) -> Result<Arc<Host>, SendError> {
        let mut hosts = self.lock();
        if let Some(host) = hosts.get(authority) {
            return Ok(host.clone());
        }
        let host_name = self.host_name(authority);
        let name = host_name
            .parse()
            .map_err(|e| SendError::Exchange(format!("invalid host {host_name:?}: {e}")))?;
        let value = HeaderValue::from_str(host_name)
            .map_err(|e| SendError::Exchange(format!("invalid host {host_name:?}: {e}")))?;
        // Not a hard limit: hosts in use stay. The next sweep waits until their number has doubled, so that a
        // large set of addresses is not searched once for each of them.
        if hosts.len() >= self.sweep_at.load(Ordering::Relaxed) {
            hosts.retain(|_, h| !h.is_unused());
            self.sweep_at.store(MAX_HOSTS.max(2 * hosts.len()), Ordering::Relaxed);
        }
        let host = Arc::new(Host::new(authority.into(), (name, value), self));
        hosts.insert(authority.into(), host.clone());
        Ok(host)
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, HashMap<Arc<str>, Arc<Host>>> {
        self.hosts.lock()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(e) => e.fmt(f),
            Self::Full => f.write_str("too many requests wait for a connection"),
            Self::Exchange(text) => f.write_str(text),
            Self::Late => f.write_str("net/http: timeout awaiting response headers"),
            Self::Client(why) => write!(f, "the request body cannot be read: {why}"),
        }
    }
}

impl StdError for SendError {}

impl From<NoConnection> for SendError {
    fn from(why: NoConnection) -> Self {
        match why {
            NoConnection::Dial(e) => Self::Dial(e),
            NoConnection::Full => Self::Full,
        }
    }
}
