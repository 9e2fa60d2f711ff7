//! Finds out who calls, and removes from the request what said so.

use super::audit::Seen;
use crate::apimachinery::status::Status;
use crate::audit::Audit;
use crate::audit::event::ResponseStatus;
use crate::authn::bearer::strip_subprotocol;
use crate::authn::{AtOnce, Authenticator, Credentials, Identified};
use crate::request::audit::CredentialNotes;
use crate::request::headers::remove_all;
use crate::request::info::first_value;
use crate::request::user::ANONYMOUS;
use crate::request::{Answering, Authenticated, Handler, PeerCertificates, Request, RequestInfo, Response, Warnings};
use crate::server::chain::{Fact, Filter, IdentityHeaders};
use crate::server::respond;
use crate::telemetry::Telemetry;
use http::Version;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::time::Instant;

struct Authentication {
    inner: Arc<dyn Handler>,
    authenticator: Arc<dyn Authenticator>,
    remove: IdentityHeaders,
    success: IntCounter,
    failure: IntCounter,
    error: IntCounter,
    users: [IntCounter; KINDS.len()],
    took: Took,
    audit: Option<Arc<Audit>>,
}

/// Durations by result.
struct Took {
    success: Histogram,
    failure: Histogram,
    error: Histogram,
}

/// Kinds of user names that are counted apart; who is none of them is the last, who looks like an address the one before.
const KINDS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];

fn kind(name: &str) -> usize {
    let known = KINDS.iter().take(5).position(|k| *k == name);
    known.unwrap_or(if name.contains('@') { 5 } else { 6 })
}

/// The filter. `remove` names headers that a front proxy may use besides the standard ones; refusals are told to `audit`.
pub fn filter(
    authenticator: Arc<dyn Authenticator>,
    mut remove: IdentityHeaders,
    telemetry: Telemetry,
    audit: Option<Arc<Audit>>,
) -> Filter {
    remove
        .names
        .extend(["x-remote-user", "x-remote-uid", "x-remote-group"].map(HeaderName::from_static));
    remove.prefixes.push("x-remote-extra-".to_owned());
    let attempts = |result| telemetry.authentication_attempts.with_label_values(&[result]);
    let (success, failure, error) = (attempts("success"), attempts("failure"), attempts("error"));
    let users = KINDS.map(|kind| telemetry.authenticated_user_requests.with_label_values(&[kind]));
    let took = |result| telemetry.authentication_duration.with_label_values(&[result]);
    let took = Took {
        success: took("success"),
        failure: took("failure"),
        error: took("error"),
    };
    Filter {
        name: "authentication",
        needs: &[Fact::AuditId, Fact::ReceivedAt, Fact::RequestInfo, Fact::Warnings],
        leaves: &[Fact::Authenticated],
        wrap: Box::new(move |inner| {
            Arc::new(Authentication {
                inner,
                authenticator,
                remove,
                success,
                failure,
                error,
                users,
                took,
                audit,
            })
        }),
    }
}

impl Handler for Authentication {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let start = Instant::now();
        match self.authenticator.at_once(credentials(&req)) {
            AtOnce::Known(found) => self.let_in(req, found, start),
            _ => Box::pin(self.ask(req, start)),
        }
    }
}

/// What a request shows.
fn credentials(req: &Request) -> Credentials<'_> {
    Credentials {
        headers: req.headers(),
        peer: req.extensions().get::<PeerCertificates>().map(|p| &p.0),
        path: req.uri().path(),
        warnings: req.extensions().get::<Warnings>(),
    }
}

/// On HTTP/2 this makes the connection say GOAWAY: who shows no credentials does not get to keep a connection.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

fn unauthorized(headers: &HeaderMap, http2: bool) -> Response {
    let mut r = respond::status(&Status::unauthorized(), headers);
    if http2 {
        r.headers_mut().insert(CONNECTION, CLOSE);
    }
    r
}

/// What a failed authentication was tried with, in upstream's words.
fn attempted(parts: &Parts) -> String {
    let said = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let said = said.unwrap_or("").trim();
    let scheme = |name: &str| {
        let mut words = said.split(' ');
        words.next().is_some_and(|w| w.eq_ignore_ascii_case(name)) && words.next().is_some()
    };
    let token = parts.uri.query().and_then(|q| first_value(q, "access_token"));
    let tried = [
        ("basic", scheme("basic")),
        ("bearer", scheme("bearer")),
        ("access_token", token.is_some_and(|t| !t.trim().is_empty())),
        ("x509", parts.extensions.get::<PeerCertificates>().is_some()),
    ];
    let tried: Vec<&str> = tried.into_iter().filter(|(_, t)| *t).map(|(name, _)| name).collect();
    if tried.is_empty() {
        "Authentication failed, no credentials provided".to_owned()
    } else {
        format!("Authentication failed, attempted: {}", tried.join(", "))
    }
}

impl Authentication {
    async fn ask(&self, req: Request, start: Instant) -> Response {
        match self.authenticator.authenticate(credentials(&req)).await {
            Ok(Some(found)) => return self.let_in(req, found, start).await,
            Ok(None) => {
                self.failure.inc();
                self.took.failure.observe(start.elapsed().as_secs_f64());
            }
            Err(reason) => {
                self.error.inc();
                self.took.error.observe(start.elapsed().as_secs_f64());
                tracing::debug!(%reason, "unable to authenticate a request");
            }
        }
        let http2 = req.version() == Version::HTTP_2;
        let (parts, _) = req.into_parts();
        self.refuse(&parts, http2).await
    }

    /// Whose request it is stands fast.
    fn let_in(&self, mut req: Request, found: Identified, start: Instant) -> Answering<'_> {
        self.success.inc();
        self.took.success.observe(start.elapsed().as_secs_f64());
        self.users[kind(&found.user.name)].inc();
        self.clean(req.headers_mut());
        if found.strip_subprotocol {
            strip_subprotocol(req.headers_mut());
        }
        if self.audit.is_some() && !found.annotations.is_empty() {
            req.extensions_mut().insert(CredentialNotes(found.annotations));
        }
        let says_close = req.version() == Version::HTTP_2 && found.user.name == ANONYMOUS;
        req.extensions_mut().insert(Authenticated::mint(found.user));
        let inner = self.inner.handle(req);
        if !says_close {
            return inner;
        }
        Box::pin(async move {
            let mut response = inner.await;
            response.headers_mut().insert(CONNECTION, CLOSE);
            response
        })
    }

    async fn refuse(&self, parts: &Parts, http2: bool) -> Response {
        if let Some(audit) = &self.audit {
            let info = parts.extensions.get::<Arc<RequestInfo>>().cloned().unwrap_or_default();
            let seen = Seen::of_parts(&parts.uri, &parts.headers, &parts.extensions, info);
            let status = ResponseStatus {
                message: attempted(parts),
                ..ResponseStatus::of(401)
            };
            super::audit::refused(audit, seen, status).await;
        }
        unauthorized(&parts.headers, http2)
    }

    fn clean(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        remove_all(headers, |name| {
            self.remove.prefixes.iter().any(|p| name.as_str().starts_with(p)) || self.remove.names.contains(name)
        });
    }
}
