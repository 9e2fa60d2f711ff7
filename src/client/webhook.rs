//! Calls webhooks: posts a review to the server that a `clientConfig` names, and returns the response's body. Used by the
//! conversion of custom resources and by admission. Error texts are those of upstream's client, because clients see them.
//!
//! Entry points: [`Webhooks::connect`], once per configuration, then [`Webhook::post`]. The contents of reviews and what
//! a failure means are left to the caller.
//!
//! A webhook harms only those who need it: each has connections of its own ([`Limits`] bounds calls, waiting callers
//! and the size of responses), one that has stopped answering fails at once (`circuit`), and redirects are not
//! followed.

mod answer;
mod circuit;
mod config;
mod connector;
mod identities;
mod shared;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use config::{Target, WebhookConfig, validate};
pub use identities::Identities;
pub use shared::SharedWebhooks;

use crate::proxy::outbound::Outbound;
use crate::proxy::tls::{TlsBuilder, TlsInputs};
use bytes::Bytes;
use circuit::Circuit;
use connector::Connector;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// As upstream's, for all webhooks.
const USER_AGENT: &str = "kube-apiserver-admission";
/// How long an idle connection is kept, and how many of them, as in Go's `http.DefaultTransport` and client-go.
const IDLE: Duration = Duration::from_secs(90);
const MAX_IDLE: usize = 25;
/// HTTP/2 connections that have calls in flight are pinged.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Most attempts while the webhook asks to come back later, as client-go.
const MAX_ATTEMPTS: u32 = 10;

/// Resolves the Service of a `clientConfig`. Implemented over the aggregator's resolver.
pub trait ResolveService: Send + Sync + 'static {
    /// The addresses (`host:port`) to try in this order; not empty.
    ///
    /// # Errors
    /// Upstream's text, such as `service "x" not found`.
    fn addresses(&self, namespace: &str, name: &str, port: u16) -> Result<Vec<Arc<str>>, String>;
}

/// What all webhooks are called with.
pub struct Webhooks {
    tls: TlsBuilder,
    outbound: Arc<Outbound>,
    services: Arc<dyn ResolveService>,
    identities: Identities,
}

/// Bounds on the use of one webhook.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most calls at the same time.
    pub calls: usize,
    /// Most callers that wait for others to finish; more fail at once.
    pub waiting: usize,
}

/// One call.
pub struct Call {
    /// The review.
    pub body: Bytes,
    /// Time for everything: waiting for other calls, connecting, and the response.
    pub timeout: Duration,
    /// Most bytes of the response.
    pub max_response: usize,
}

/// A webhook with its connections.
pub struct Webhook {
    url: String,
    host: String,
    authorization: Option<HeaderValue>,
    client: legacy::Client<Connector, Full<Bytes>>,
    calls: Semaphore,
    /// Callers in a call or waiting for one.
    admitted: Semaphore,
    circuit: Circuit,
}

/// Why a call failed. `Display` is upstream's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// There was no response: the text of Go's `url.Error`, such as `Post "https://…": EOF`.
    Transport(String),
    /// There was no response in time: the URL.
    Timeout(String),
    /// The response is an error: its status code, and the text upstream makes of it.
    Status(u16, String),
    /// The response exceeds the limit: the URL and the limit.
    TooLarge(String, usize),
    /// Too many callers are waiting already: the URL.
    Busy(String),
}

impl Webhooks {
    /// Webhooks that are called with these TLS settings, egress rules and Services.
    pub fn new(tls: TlsBuilder, outbound: Outbound, services: Arc<dyn ResolveService>) -> Self {
        Self {
            tls,
            outbound: Arc::new(outbound),
            services,
            identities: Identities::default(),
        }
    }

    /// Identifies the server to each webhook as one of these users.
    #[must_use]
    pub fn with_identities(self, identities: Identities) -> Self {
        Self { identities, ..self }
    }

    /// Prepares calls of a webhook; connects when it is first called.
    ///
    /// # Errors
    /// Upstream's text, if the CA bundle cannot be used.
    pub fn connect(&self, config: &WebhookConfig, limits: Limits) -> Result<Webhook, String> {
        let server_name = config.target.host();
        let identity = self.identities.of(&config.target.host_and_port());
        let tls = self.tls.build(&TlsInputs {
            insecure: false,
            ca_bundle: config.ca_bundle.clone(),
            server_name: server_name.clone(),
            identity: identity.and_then(|i| i.certificate.clone()),
        })?;
        let connector = Connector::new(
            config.target.clone(),
            Arc::new(tls),
            self.outbound.clone(),
            self.services.clone(),
        );
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector);
        Ok(Webhook {
            url: config.target.url(),
            host: config.target.authority(),
            authorization: identity.and_then(|i| i.authorization.clone()),
            client,
            calls: Semaphore::new(limits.calls),
            admitted: Semaphore::new(limits.calls + limits.waiting),
            circuit: Circuit::default(),
        })
    }
}

impl Webhook {
    /// Posts a review and returns the body of the successful response. `?timeout=` tells the webhook how long it has.
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Cancel safety
    /// Cancel safe for this side; the webhook may have received the review.
    pub async fn post(&self, call: Call) -> Result<Bytes, CallError> {
        let seconds = call.timeout.as_secs_f64().ceil();
        let url = format!("{}?timeout={seconds}s", self.url);
        let _admitted = self.admitted.try_acquire().map_err(|_| CallError::Busy(url.clone()))?;
        let deadline = Instant::now() + call.timeout;
        let turn = tokio::time::timeout_at(deadline, self.calls.acquire()).await;
        let _turn = turn
            .map_err(|_| CallError::Timeout(url.clone()))?
            .expect("the semaphore is never closed");
        let probe = self.circuit.enter(call.timeout)?;
        let began = Instant::now();
        let called = match tokio::time::timeout_at(deadline, self.attempts(&url, &call)).await {
            Ok(called) => called,
            Err(_) => Err(CallError::Timeout(url)),
        };
        probe.record(began.elapsed(), called.as_ref().err());
        called
    }

    /// Repeats the call while the webhook answers with an error and `Retry-After`.
    async fn attempts(&self, url: &str, call: &Call) -> Result<Bytes, CallError> {
        let mut attempt = 1;
        loop {
            let (status, retry_after, content_type, body) = self.attempt(url, call).await?;
            if status.is_success() {
                return Ok(body);
            }
            match retry_after.filter(|_| attempt < MAX_ATTEMPTS) {
                Some(pause) if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                    tracing::debug!(%url, %status, attempt, ?pause, "the webhook asks to be called later");
                    tokio::time::sleep(pause).await;
                }
                _ => {
                    let text = answer::error_text(status, content_type.as_deref(), &body);
                    return Err(CallError::Status(status.as_u16(), text));
                }
            }
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        url: &str,
        call: &Call,
    ) -> Result<(StatusCode, Option<Duration>, Option<String>, Bytes), CallError> {
        let failed = |why: String| CallError::Transport(format!("Post {url:?}: {why}"));
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::HOST, &self.host)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Full::new(call.body.clone()))
            .map_err(|e| failed(e.to_string()))?;
        if let Some(authorization) = &self.authorization {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, authorization.clone());
        }
        let sent = self.client.request(request).await;
        let response = sent.map_err(|e| failed(connector::error_text(&e)))?;
        let text = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let (status, content_type) = (response.status(), text(header::CONTENT_TYPE));
        let seconds = text(header::RETRY_AFTER).and_then(|s| s.parse().ok());
        let body = Limited::new(response.into_body(), call.max_response).collect().await;
        let body = body.map_err(|e| match e.downcast_ref::<LengthLimitError>() {
            Some(_) => CallError::TooLarge(url.to_owned(), call.max_response),
            None => CallError::Transport(format!(
                "unexpected error when reading response body. Please retry. Original error: {}",
                connector::error_text(&*e)
            )),
        })?;
        Ok((status, seconds.map(Duration::from_secs), content_type, body.to_bytes()))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(text) | Self::Status(_, text) => f.write_str(text),
            Self::Timeout(url) => write!(f, "Post {url:?}: context deadline exceeded"),
            Self::TooLarge(url, limit) => write!(f, "Post {url:?}: the response is larger than {limit} bytes"),
            Self::Busy(url) => write!(f, "Post {url:?}: too many calls are waiting for this webhook"),
        }
    }
}

impl std::error::Error for CallError {}
