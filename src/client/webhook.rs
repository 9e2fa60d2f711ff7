//! Calls webhooks: posts a review to the server that a `clientConfig` names, and returns the response's body.
//! Used by the conversion of custom resources and by admission. Error texts are those of upstream's client,
//! because clients see them.
//!
//! Entry points: [`Webhooks::connect`], once per configuration, then [`Webhook::post`]. The contents of
//! reviews and what a failure means are left to the caller.
//!
//! A slow webhook affects only its own callers: each has connections of its own ([`Limits`] bounds calls,
//! waiting callers and the size of responses), few large responses are in memory at the same time
//! (`response`), one that has stopped answering fails at once (`circuit`), and redirects are not followed.
//! Connections, and the choice among the endpoints of a Service, are those of [`crate::proxy::transport`].

mod answer;
mod circuit;
mod config;
mod error;
mod identities;
mod own_server;
mod response;
mod review_version;
mod shared;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use config::{Target, WebhookConfig, validate};
pub(crate) use error::{CallError, ResolveError, UnusableConfig};
pub(crate) use identities::Identities;
pub use review_version::ReviewVersion;
pub(crate) use shared::SharedWebhooks;

use super::bearer::BearerToken;
use crate::apimachinery::value::Value;
use crate::proxy::outbound::Outbound;
use crate::proxy::tls::{self, TlsBuilder, TlsInputs};
use crate::proxy::transport::{EndpointState, Outgoing, ProbeRequest, SendError, Transport};
use crate::request::{Body, Handler};
use crate::tasks::TaskGroup;
use crate::telemetry::short_duration;
use answer::Received;
use bytes::Bytes;
use circuit::Circuit;
use error::failed;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use response::ResponsePermits;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

/// As upstream's, for all webhooks.
const USER_AGENT: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");
/// Maximum attempts while the webhook answers with Retry-After, as client-go.
const MAX_ATTEMPTS: u32 = 10;

/// Resolves the Service of a `clientConfig`. Implemented over the aggregator's resolver.
pub(crate) trait ResolveService: Send + Sync + 'static {
    /// The addresses (`host:port`) to choose from; not empty.
    ///
    /// # Errors
    /// [`ResolveError`].
    fn addresses(&self, namespace: &str, name: &str, port: u16) -> Result<Arc<[Arc<str>]>, ResolveError>;

    /// This server, which is the Service default/kubernetes; `None` while it starts and after it has ended.
    fn own_server(&self) -> Option<Arc<dyn Handler>>;
}

/// The settings shared by all webhooks.
pub(crate) struct Webhooks {
    tls: TlsBuilder,
    outbound: Arc<Outbound>,
    services: Arc<dyn ResolveService>,
    identities: Identities,
    tasks: TaskGroup,
}

/// Bounds on the use of one webhook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of calls at the same time.
    pub calls: usize,
    /// Maximum number of callers that wait for others to finish; more fail at once.
    pub waiting: usize,
}

pub(crate) struct Call {
    /// The review, as JSON.
    pub body: Bytes,
    /// Time for everything: waiting for other calls, connecting, and the response.
    pub timeout: Duration,
    /// Maximum size of the response, in bytes.
    pub max_response: usize,
}

/// A webhook with its connections.
pub(crate) struct Webhook {
    target: Target,
    url: String,
    /// Those of each call, without the credentials.
    headers: HeaderMap,
    token: Option<Arc<BearerToken>>,
    services: Arc<dyn ResolveService>,
    transport: Transport,
    limits: Limits,
    calls: Semaphore,
    /// Callers in a call or waiting for one.
    admitted: Semaphore,
    responses: ResponsePermits,
    circuit: Circuit,
}

impl Webhooks {
    /// Webhooks that are called with these TLS settings, egress rules and Services. Connections are driven in
    /// `tasks`.
    pub(crate) fn new(
        tls: TlsBuilder,
        outbound: Outbound,
        services: Arc<dyn ResolveService>,
        tasks: TaskGroup,
    ) -> Self {
        Self {
            tls,
            outbound: Arc::new(outbound),
            services,
            identities: Identities::default(),
            tasks,
        }
    }

    /// Identifies the server to each webhook as one of these users.
    #[must_use]
    pub(crate) fn with_identities(self, identities: Identities) -> Self {
        Self { identities, ..self }
    }

    /// Prepares calls of a webhook; connects when it is first called.
    ///
    /// # Errors
    /// If the CA bundle cannot be used.
    pub(crate) fn connect(&self, config: &WebhookConfig, limits: Limits) -> Result<Webhook, tls::Error> {
        let identity = self.identities.of(&config.target.host_and_port());
        // A `clientConfig` has no option that skips verification.
        let tls = self.tls.build(&TlsInputs {
            insecure: false,
            ca_bundle: config.ca_bundle.clone().into(),
            server_name: config.target.host(),
            identity: identity.and_then(|i| i.certificate.clone()),
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, USER_AGENT);
        // Without the credentials: a probe only asks whether the address answers.
        let probe = ProbeRequest {
            headers: headers.clone(),
            ..ProbeRequest::default()
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // As client-go sends it.
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
        // Upstream's client sends the host of the URL or Service, whichever address it connects to.
        let transport = Transport::new(tls, self.outbound.clone(), self.tasks.clone())
            .with_host_name(&config.target.authority())
            .with_probe(probe);
        Ok(Webhook {
            url: config.target.url(),
            target: config.target.clone(),
            headers,
            token: identity.and_then(|i| i.token.clone()),
            services: self.services.clone(),
            transport,
            limits,
            calls: Semaphore::new(limits.calls),
            admitted: Semaphore::new(limits.calls + limits.waiting),
            responses: ResponsePermits::default(),
            circuit: Circuit::default(),
        })
    }
}

impl Webhook {
    /// Posts a review and returns the body of the successful response. `?timeout=` tells the webhook how long
    /// it has.
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Cancel safety
    /// Cancel safe for this side; the webhook may have received the review.
    pub(crate) async fn post(&self, call: Call) -> Result<Bytes, CallError> {
        // Rounded up, so that a webhook with less than a second is not told `0s`.
        let seconds = call.timeout.as_secs_f64().ceil();
        let url = format!("{}?timeout={seconds}s", self.url);
        // Covers calls and waiting callers together. Beyond it, failing now is better than a timeout later.
        let _admitted = self.admitted.try_acquire().map_err(|_| CallError::Busy(url.clone()))?;
        let deadline = Instant::now() + call.timeout;
        let permit = tokio::time::timeout_at(deadline, self.calls.acquire()).await;
        let _permit = permit
            .map_err(|_| CallError::Timeout(url.clone()))?
            .expect("the semaphore is never closed");
        // After the wait, during which the circuit may have opened; and waiting does not count as a slow
        // failure.
        let probe = self.circuit.enter(call.timeout)?;
        let began = Instant::now();
        let called = self.attempts(&url, &call, deadline).await;
        probe.record(began.elapsed(), called.as_ref().err());
        called
    }

    /// The load of the webhook, and the state of each address that was called, for status pages.
    pub(crate) fn status(&self) -> Value {
        // The two semaphores are read one after the other, so the difference could be negative without `min`
        // below.
        let admitted = self.limits.calls + self.limits.waiting - self.admitted.available_permits();
        let in_call = (self.limits.calls - self.calls.available_permits()).min(admitted);
        let endpoints = self.transport.endpoints();
        let endpoints: Vec<Value> = endpoints.iter().map(EndpointState::document).collect();
        let mut v = crate::json!({"inCall": (in_call as i64), "waiting": ((admitted - in_call) as i64), "endpoints": endpoints});
        if let Some(left) = self.circuit.open_for() {
            v.set(&["suspendedFor"], short_duration(left));
        }
        v
    }

    /// Repeats the call while the webhook answers with an error and `Retry-After`.
    async fn attempts(&self, url: &str, call: &Call, deadline: Instant) -> Result<Bytes, CallError> {
        let late = || CallError::Timeout(url.to_owned());
        let mut attempt = 1;
        loop {
            // Calls over the network have their limit inside, where a timeout is recorded for the address.
            let received = match own_server::is_addressed(&self.target) {
                true => tokio::time::timeout_at(deadline, self.attempt_here(url, call)).await,
                false => self.attempt_there(url, call, deadline).await,
            };
            let received = received.map_err(|_| late())??;
            let status = received.status;
            if status.is_success() {
                return Ok(received.body);
            }
            match received.retry_after.filter(|_| attempt < MAX_ATTEMPTS) {
                // As client-go's `checkWait`: with any other code the header is ignored.
                Some(pause) if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                    tracing::debug!(%url, %status, attempt, ?pause, "the webhook asks to be called later");
                    let paused = tokio::time::timeout_at(deadline, tokio::time::sleep(pause)).await;
                    paused.map_err(|_| late())?;
                }
                _ => {
                    let text = answer::error_text(status, received.content_type.as_deref(), &received.body);
                    return Err(CallError::Status(status.as_u16(), text));
                }
            }
            attempt += 1;
        }
    }

    /// Where the webhook is at present.
    fn addresses(&self) -> Result<Arc<[Arc<str>]>, ResolveError> {
        match &self.target {
            Target::Url(_) => {
                let address: Arc<str> = self.target.host_and_port().into();
                Ok([address].into())
            }
            Target::Service {
                namespace, name, port, ..
            } => self.services.addresses(namespace, name, *port),
        }
    }

    async fn attempt_there(
        &self,
        url: &str,
        call: &Call,
        deadline: Instant,
    ) -> Result<Result<Received, CallError>, Elapsed> {
        let addresses = match self.addresses() {
            Ok(addresses) => addresses,
            Err(why) => return Ok(Err(failed(url, why))),
        };
        // Chosen here instead of in the transport, so that a timeout can be recorded for it.
        let first = self.transport.choose(&addresses);
        let attempt = self.exchange(url, call, (&*addresses, &**first));
        let received = tokio::time::timeout_at(deadline, attempt).await;
        // The exchange was dropped, so it cannot report the failure itself.
        if received.is_err() {
            self.transport.record_timeout(first, "context deadline exceeded");
        }
        received
    }

    async fn attempt_here(&self, url: &str, call: &Call) -> Result<Received, CallError> {
        let server = self.services.own_server();
        let server = server.ok_or_else(|| failed(url, ResolveError::Starting))?;
        let request = own_server::request(self.path(url)?, self.headers().await, call.body.clone());
        Received::read(server.handle(request).await, url, call.max_response, &self.responses).await
    }

    /// The headers of a call.
    async fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.header().await);
        }
        headers
    }

    /// The URL with its query, without scheme and authority.
    fn path(&self, url: &str) -> Result<PathAndQuery, CallError> {
        // `url` is `self.url` with a query, and `self.url` ends with the path.
        let target = url.get(self.url.len() - self.target.path().len()..).unwrap_or("/");
        PathAndQuery::try_from(target).map_err(|e| failed(url, e))
    }

    async fn exchange(
        &self,
        url: &str,
        call: &Call,
        (addresses, first): (&[Arc<str>], &str),
    ) -> Result<Received, CallError> {
        let out = Outgoing {
            method: Method::POST,
            target: self.path(url)?,
            headers: self.headers().await,
            body: Body::full(call.body.clone()),
        };
        let sent = self.transport.send_among(addresses, first, out).await;
        let response = sent.map_err(|e| match e {
            SendError::Dial(e) => failed(url, e.0),
            e => failed(url, e),
        })?;
        Received::read(response, url, call.max_response, &self.responses).await
    }
}
