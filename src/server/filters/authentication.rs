//! Authenticates requests, and removes their credentials before they are passed on (upstream's
//! `k8s.io/apiserver/pkg/endpoints/filters/authentication.go`).

use super::Next;
use super::amend::amended;
use super::audit::RequestSummary;
use crate::apimachinery::status::Status;
use crate::audit::Audit;
use crate::audit::event::ResponseStatus;
use crate::authn::bearer::strip_subprotocol;
use crate::authn::{AuthenticatedUser, Authenticator, Credentials, SyncOutcome};
use crate::request::headers::IdentityHeaders;
use crate::request::info::first_value;
use crate::request::user::ANONYMOUS;
use crate::request::{Authenticated, Minted, Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond;
use crate::telemetry::{Telemetry, spans};
use http::Version;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue};
use http::request::Parts;
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Authentication<F> {
    inner: F,
    authenticator: Arc<dyn Authenticator>,
    remove: IdentityHeaders,
    success: IntCounter,
    failure: IntCounter,
    error: IntCounter,
    users: [IntCounter; USER_CLASSES.len()],
    durations: Durations,
    audit: Option<Arc<Audit>>,
}

/// Histograms of the authentication time, by result.
struct Durations {
    success: Histogram,
    failure: Histogram,
    error: Histogram,
}

/// User names counted separately, upstream's list. The last two stand for any name with an `@` and for all
/// others.
const USER_CLASSES: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];

fn user_class(name: &str) -> usize {
    let known = USER_CLASSES.iter().take(5).position(|k| *k == name);
    known.unwrap_or(if name.contains('@') { 5 } else { 6 })
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[
        ContextField::AuditId,
        ContextField::Received,
        ContextField::RequestInfo,
        ContextField::Warnings,
    ],
    sets: &[ContextField::Caller],
};

/// The key to [`Authenticated::mint`], which only the filters can make: this one and impersonation.
pub struct Key(pub(super) ());

impl Minted for Authenticated {
    type Key = Key;
}

impl<F> Authentication<F> {
    /// Wraps `inner`. `remove` lists the headers that a front proxy may use besides the standard ones;
    /// rejections are recorded in `audit`.
    pub(crate) fn new(
        inner: F,
        authenticator: Arc<dyn Authenticator>,
        remove: IdentityHeaders,
        telemetry: &Telemetry,
        audit: Option<Arc<Audit>>,
    ) -> Self {
        // All series are looked up once: a lookup by label takes a lock.
        let attempts = |result| telemetry.authentication_attempts.with_label_values(&[result]);
        let durations = |result| telemetry.authentication_duration.with_label_values(&[result]);
        Self {
            inner,
            authenticator,
            remove: remove.with_standard(),
            success: attempts("success"),
            failure: attempts("failure"),
            error: attempts("error"),
            users: USER_CLASSES
                .map(|user_class| telemetry.authenticated_user_requests.with_label_values(&[user_class])),
            durations: Durations {
                success: durations("success"),
                failure: durations("failure"),
                error: durations("error"),
            },
            audit,
        }
    }
}

impl<F: Filter> Filter for Authentication<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let start = Instant::now();
        // Set only by calls within the process (the loopback client), never from the network; taken, so that a
        // request that is passed on does not carry it.
        if let Some(user) = RequestContext::of_mut(req).in_process.take() {
            return Next::Left(self.admit(req, AuthenticatedUser::new(user), start));
        }
        match self.authenticator.authenticate_sync(credentials(req)) {
            SyncOutcome::Authenticated(found) => Next::Left(self.admit(req, found, start)),
            // Not decided yet, or refused: both paths may have to wait, for an authenticator or for the audit
            // backend.
            _ => Next::Right(Box::pin(self.authenticate(std::mem::take(req), start))),
        }
    }
}

/// The credentials of a request.
fn credentials(req: &Request) -> Credentials<'_> {
    let context = RequestContext::of(req);
    Credentials {
        headers: req.headers(),
        peer: context.certificates.as_ref().map(|p| &p.0),
        path: req.uri().path(),
        warnings: context.warnings.as_ref(),
    }
}

/// Over HTTP/2 this becomes GOAWAY: unauthenticated and anonymous clients cannot keep a connection, as
/// upstream.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

fn unauthorized(headers: &HeaderMap, http2: bool) -> Response {
    let mut r = respond::status(&Status::unauthorized(), headers);
    if http2 {
        r.headers_mut().insert(CONNECTION, CLOSE);
    }
    r
}

/// The audit message of a failed authentication, worded as upstream words it.
fn failure_message(parts: &Parts) -> String {
    let said = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let said = said.unwrap_or("").trim();
    let scheme = |name: &str| {
        let mut words = said.split(' ');
        // A scheme without credentials does not count as an attempt.
        words.next().is_some_and(|w| w.eq_ignore_ascii_case(name)) && words.next().is_some()
    };
    let token = parts.uri.query().and_then(|q| first_value(q, "access_token"));
    let tried = [
        ("basic", scheme("basic")),
        ("bearer", scheme("bearer")),
        ("access_token", token.is_some_and(|t| !t.trim().is_empty())),
        ("x509", RequestContext::of(parts).certificates.is_some()),
    ];
    let tried: Vec<&str> = tried.into_iter().filter(|(_, t)| *t).map(|(name, _)| name).collect();
    if tried.is_empty() {
        "Authentication failed, no credentials provided".to_owned()
    } else {
        format!("Authentication failed, attempted: {}", tried.join(", "))
    }
}

impl<F: Filter> Authentication<F> {
    async fn authenticate(&self, mut req: Request, start: Instant) -> Response {
        match self.authenticator.authenticate(credentials(&req)).await {
            Ok(Some(found)) => return self.admit(&mut req, found, start).await,
            // No authenticator recognized the credentials, and anonymous requests are disabled.
            Ok(None) => {
                self.failure.inc();
                self.durations.failure.observe(start.elapsed().as_secs_f64());
            }
            Err(reason) => {
                self.error.inc();
                self.durations.error.observe(start.elapsed().as_secs_f64());
                tracing::debug!(%reason, "unable to authenticate a request");
            }
        }
        // HTTP/1.1 connections are kept, as upstream: only HTTP/2 has a GOAWAY.
        let http2 = req.version() == Version::HTTP_2;
        // Drops the body: an unauthenticated client must not hold memory while the audit event is stored.
        let (parts, _) = req.into_parts();
        self.reject(&parts, http2).await
    }

    /// Passes an authenticated request on.
    fn admit<'s>(
        &'s self,
        req: &mut Request,
        found: AuthenticatedUser,
        start: Instant,
    ) -> impl Future<Output = Response> + Send + use<'s, F> {
        self.success.inc();
        let took = start.elapsed();
        self.durations.success.observe(took.as_secs_f64());
        self.users[user_class(&found.user.name)].inc();
        // Before anything else sees the request: handlers and backends must not receive the caller's token.
        self.strip_credentials(req.headers_mut());
        if found.strip_subprotocol {
            strip_subprotocol(req.headers_mut());
        }
        // Read before the user moves into the context.
        let says_close = req.version() == Version::HTTP_2 && found.user.name == ANONYMOUS;
        spans::record_user(&found.user.name);
        let context = RequestContext::of_mut(req);
        if found.user.name != ANONYMOUS
            && let Some(connection) = &context.connection
        {
            // Moves the connection out of the share of the connection limit that unauthenticated clients have.
            connection.authenticated(&found.user.name);
        }
        context.authn_annotations = found.annotations;
        context.authentication_took = took;
        context.caller = Some(Authenticated::mint(found.user, Key(())));
        amended(self.inner.handle(req), move |response| {
            if says_close {
                response.headers_mut().insert(CONNECTION, CLOSE);
            }
        })
    }

    async fn reject(&self, parts: &Parts, http2: bool) -> Response {
        if let Some(audit) = &self.audit {
            let context = RequestContext::of(parts);
            let summary = RequestSummary::of_parts(
                &parts.uri,
                &parts.headers,
                context,
                context.info.clone().unwrap_or_default(),
            );
            let status = ResponseStatus {
                message: failure_message(parts),
                ..ResponseStatus::of(401)
            };
            super::audit::refused(audit, summary, status).await;
        }
        unauthorized(&parts.headers, http2)
    }

    fn strip_credentials(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        self.remove.strip(headers);
    }
}
