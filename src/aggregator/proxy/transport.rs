//! Pooled connections to backends under one TLS configuration.
//!
//! One [`Transport`] per set of TLS inputs, one `Host` per resolved `host:port` in it. HTTP/2 where the backend chooses
//! it (several connections once the streams of one are used up), else HTTP/1.1 connections that are kept while idle.
//! Each connection is driven by a task of its own, which ends when nothing refers to the connection any more: dropping a
//! transport closes what is idle and lets requests in flight finish.

mod balance;
mod body;
mod exchange;
mod host;
mod http2;
mod kept;
mod probation;
mod ranked;
mod room;
mod upload;
mod way;

pub use balance::EndpointState;
pub use body::BackendBody;
pub use probation::Question;
pub use room::Bounds;
pub use way::Way;

use super::dial::DialError;
use super::tls::ClientTls;
use crate::client::outbound::Outbound;
use crate::request::headers::IdentityHeaders;
use crate::request::{Body, Interim};
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
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// Attempts for a request that provably never reached the backend.
const MOST_ATTEMPTS: usize = 4;
const GOAWAY: &str = "http2: server sent GOAWAY and closed the connection";
/// Hosts remembered per transport; endpoints come and go, and those unused are forgotten beyond this number.
const MOST_HOSTS: usize = 64;

/// A request for a backend. The authority comes from the resolver.
pub struct Outgoing {
    /// Method.
    pub method: Method,
    /// Canonical path and query.
    pub target: PathAndQuery,
    /// Headers, without `Host`.
    pub headers: HeaderMap,
    /// Body.
    pub body: Body,
}

/// Why there is no answer: a text for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No connection came about.
    Dial(DialError),
    /// As many connections and waiting requests are there as may be.
    Full,
    /// The connection failed before the answer's head.
    Exchange(String),
    /// The head of the answer took longer than it may.
    Late,
    /// The request's body could not be read from the client.
    Client(String),
}

/// Connections that share a TLS configuration.
pub struct Transport {
    tls: Arc<ClientTls>,
    outbound: Arc<Outbound>,
    tasks: TaskGroup,
    hosts: Mutex<HashMap<Arc<str>, Arc<Host>>>,
    turn: AtomicU64,
    counts: Option<ClientRequestMetrics>,
    bounds: Bounds,
    way: Way,
    question: Arc<Question>,
    hop: Option<HeaderValue>,
    identity: Arc<IdentityHeaders>,
}

impl Transport {
    /// A transport without connections. Its connections' tasks belong to `tasks`.
    pub fn new(tls: ClientTls, outbound: Arc<Outbound>, tasks: TaskGroup) -> Self {
        Self {
            tls: Arc::new(tls),
            outbound,
            tasks,
            hosts: Mutex::default(),
            turn: AtomicU64::new(0),
            counts: None,
            bounds: Bounds::default(),
            way: Way::default(),
            question: Arc::default(),
            hop: None,
            identity: Arc::default(),
        }
    }

    /// Requests of the gateway's own say that they come from this one of several gateways.
    #[must_use]
    pub fn named(mut self, hop: HeaderValue) -> Self {
        self.hop = Some(hop);
        self
    }

    /// What is told with [`Transport::named`].
    pub fn hop(&self) -> Option<&HeaderValue> {
        self.hop.as_ref()
    }

    /// Trailers that claim an identity do not go out.
    #[must_use]
    pub fn stripping(mut self, identity: Arc<IdentityHeaders>) -> Self {
        self.identity = identity;
        self
    }

    /// With these bounds for each address.
    #[must_use]
    pub fn bounded(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// An address that was left alone is asked this before requests go there again.
    #[must_use]
    pub fn asking(mut self, question: Question) -> Self {
        self.question = Arc::new(question);
        self
    }

    /// Counts the requests that are not passed on for anybody.
    #[must_use]
    pub fn counting(mut self, counts: ClientRequestMetrics) -> Self {
        self.counts = Some(counts);
        self
    }

    /// Where those are counted.
    pub fn counts(&self) -> Option<&ClientRequestMetrics> {
        self.counts.as_ref()
    }

    /// The TLS configuration.
    pub fn tls(&self) -> &ClientTls {
        &self.tls
    }

    /// Sends a request of our own, which no bounds stop, and waits for the head of the answer.
    ///
    /// What never reached the backend is sent again on another connection; what was refused unprocessed too, once, where
    /// its body is small and all sent; a GET, HEAD, OPTIONS or TRACE whose reused connection died once, or whose connection
    /// owes an answer to a ping where there is another address.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Cancel safety
    /// When dropped, the request is cancelled at the backend (stream reset, or connection closed).
    pub async fn send(&self, authority: &str, out: Outgoing) -> Result<Response<BackendBody>, SendError> {
        self.deliver(&[authority.into()], authority, out.into(), false, None)
            .await
    }

    /// As [`Transport::send`]; what cannot be sent to `first` goes to another of `endpoints`.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Cancel safety
    /// When dropped, the request is cancelled at the backend (stream reset, or connection closed).
    pub async fn send_among(
        &self,
        endpoints: &[Arc<str>],
        first: &str,
        out: Outgoing,
    ) -> Result<Response<BackendBody>, SendError> {
        self.deliver(endpoints, first, out.into(), false, None).await
    }

    /// Which of these addresses a request should go to: the less busy of two that are drawn, leaving out those that have
    /// failed lately.
    pub fn choose<'a>(&self, endpoints: &'a [Arc<str>]) -> &'a Arc<str> {
        match endpoints {
            [] => unreachable!("a resolver gives at least one address"),
            [one] => one,
            many => self.choose_but(many, None),
        }
    }

    /// Sends a request for somebody, and what the backend says ahead of its answer to `interim`; what cannot be sent to
    /// `first`, and never was, goes to another of `endpoints`. Sent again is what [`Transport::send`] sends again.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Cancel safety
    /// When dropped, the request is cancelled at the backend (stream reset, or connection closed).
    pub fn send_to(
        &self,
        endpoints: &[Arc<str>],
        first: &str,
        out: Box<Outgoing>,
        interim: Option<&Interim>,
    ) -> impl Future<Output = Result<Response<BackendBody>, SendError>> {
        self.deliver(endpoints, first, out, true, interim)
    }

    async fn deliver(
        &self,
        endpoints: &[Arc<str>],
        first: &str,
        mut out: Box<Outgoing>,
        bounded: bool,
        interim: Option<&Interim>,
    ) -> Result<Response<BackendBody>, SendError> {
        let mut host = self.host(first)?;
        let kept = if http_body::Body::is_end_stream(&out.body) {
            None
        } else {
            let (body, kept) = kept::keep(std::mem::take(&mut out.body), self.identity.clone());
            out.body = body;
            Some(kept)
        };
        let mut spare = Some(kept::Head::of(&out));
        let mut next = out;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let others = endpoints.len() > 1 && attempt < MOST_ATTEMPTS;
            let found = match host.stream_at_once(bounded) {
                Some(stream) => Ok(Lease::Http2(stream)),
                // Boxed, as all that is not the rule here: every request would make room for it.
                None => Box::pin(balance::checkout(&host, others, bounded)).await,
            };
            let lease = match found {
                Ok(lease) => lease,
                Err(why) => {
                    // Who has much to do is not ill.
                    if let NoConnection::Dial(why) = &why {
                        host.health.failed(&why.0);
                    }
                    if !others {
                        return Err(why.into());
                    }
                    // Nothing was sent yet.
                    host = self.another(endpoints, &host)?;
                    balance::say_where(&host, &mut next);
                    continue;
                }
            };
            // What waits for a silent connection goes elsewhere, if it may be sent twice.
            let is_free = others && kept.is_none() && spare.as_ref().is_some_and(|s| is_idempotent(s.method()));
            let silence = if is_free { lease.silence() } else { None };
            let outcome = {
                let mut sending = pin!(exchange(&host, lease, *next, kept.as_ref(), interim));
                match silence {
                    None => sending.await,
                    // Boxed: every request would make room for it.
                    Some(silence) => Box::pin(balance::unless_silent(silence, sending.as_mut())).await,
                }
            };
            let mut failure = match outcome {
                Ok(answer) => {
                    host.health.succeeded();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if let Some(why) = kept.as_ref().and_then(kept::Kept::broken) {
                return Err(SendError::Client(why));
            }
            host.health.failed(&failure.text);
            next = match (failure.unsent.take(), spare.take()) {
                (Some(unsent), kept) if attempt < MOST_ATTEMPTS => {
                    spare = kept;
                    unsent
                }
                (None, Some(again)) if failure.may_retry(again.method(), kept.is_some()) => {
                    match kept.as_ref().map_or(Some(Body::empty()), kept::Kept::again) {
                        Some(body) => again.again(body).into(),
                        None => return Err(SendError::Exchange(failure.text)),
                    }
                }
                _ => return Err(SendError::Exchange(failure.text)),
            };
            if others {
                host = self.another(endpoints, &host)?;
                balance::say_where(&host, &mut next);
            }
        }
    }

    fn another(&self, endpoints: &[Arc<str>], not: &Host) -> Result<Arc<Host>, SendError> {
        self.host(self.choose_but(endpoints, Some(&not.address)))
    }

    /// What is known of the addresses that were used.
    pub fn endpoints(&self) -> Vec<EndpointState> {
        let hosts: Vec<Arc<Host>> = self.lock().values().cloned().collect();
        let mut all: Vec<EndpointState> = hosts.iter().map(|h| h.state()).collect();
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all
    }

    /// Uses no present connection for new requests: after a failed probe, a pooled connection to a wrong or dead server
    /// must not live on. Requests in flight go on.
    pub fn close_idle(&self) {
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
        if hosts.len() >= MOST_HOSTS {
            hosts.retain(|_, h| !h.is_idle());
        }
        let host = Arc::new(Host::new(authority.into(), (name, value), self));
        hosts.insert(authority.into(), host.clone());
        Ok(host)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Arc<Host>>> {
        self.hosts.lock().expect("no code panics while holding this lock")
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
