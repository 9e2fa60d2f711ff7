//! Authenticates requests, and removes their credentials before they are passed on (upstream's
//! `k8s.io/apiserver/pkg/endpoints/filters/authentication.go`).

use super::Onward;
use super::amend::amended;
use super::audit::Seen;
use crate::apimachinery::status::Status;
use crate::audit::Audit;
use crate::audit::event::ResponseStatus;
use crate::authn::bearer::strip_subprotocol;
use crate::authn::{AtOnce, Authenticator, Credentials, Identified};
use crate::request::info::first_value;
use crate::request::user::ANONYMOUS;
use crate::request::{Authenticated, Facts, Minted, Request, Response};
use crate::server::chain::{Entry, Fact, Filter, IdentityHeaders};
use crate::server::respond;
use crate::telemetry::Telemetry;
use http::Version;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue};
use http::request::Parts;
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::time::Instant;

/// The authentication filter.
pub struct Authentication<F> {
    inner: F,
    authenticator: Arc<dyn Authenticator>,
    remove: IdentityHeaders,
    success: IntCounter,
    failure: IntCounter,
    error: IntCounter,
    users: [IntCounter; KINDS.len()],
    took: Took,
    audit: Option<Arc<Audit>>,
}

/// Histograms of the authentication time, by result.
struct Took {
    success: Histogram,
    failure: Histogram,
    error: Histogram,
}

/// User names counted separately, upstream's list. The last two stand for any name with an `@` and for all others.
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

/// The filter's declaration in the chain.
pub const ENTRY: Entry = Entry {
    name: "authentication",
    needs: &[Fact::AuditId, Fact::Received, Fact::RequestInfo, Fact::Warnings],
    leaves: &[Fact::Caller],
};

/// The key to [`Authenticated::mint`], which only the filters can make: this one and impersonation.
pub struct Key(pub(super) ());

impl Minted for Authenticated {
    type Key = Key;
}

impl<F> Authentication<F> {
    /// Wraps `inner`. `remove` lists the headers that a front proxy may use besides the standard ones; rejections are
    /// recorded in `audit`.
    pub fn new(
        inner: F,
        authenticator: Arc<dyn Authenticator>,
        remove: IdentityHeaders,
        telemetry: &Telemetry,
        audit: Option<Arc<Audit>>,
    ) -> Self {
        let attempts = |result| telemetry.authentication_attempts.with_label_values(&[result]);
        let took = |result| telemetry.authentication_duration.with_label_values(&[result]);
        Self {
            inner,
            authenticator,
            remove: remove.with_standard(),
            success: attempts("success"),
            failure: attempts("failure"),
            error: attempts("error"),
            users: KINDS.map(|kind| telemetry.authenticated_user_requests.with_label_values(&[kind])),
            took: Took {
                success: took("success"),
                failure: took("failure"),
                error: took("error"),
            },
            audit,
        }
    }
}

impl<F: Filter> Filter for Authentication<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let start = Instant::now();
        match self.authenticator.at_once(credentials(req)) {
            AtOnce::Known(found) => Onward::Left(self.let_in(req, found, start)),
            _ => Onward::Right(Box::pin(self.ask(std::mem::take(req), start))),
        }
    }
}

/// The credentials of a request.
fn credentials(req: &Request) -> Credentials<'_> {
    let facts = Facts::of(req);
    Credentials {
        headers: req.headers(),
        peer: facts.certificates.as_ref().map(|p| &p.0),
        path: req.uri().path(),
        warnings: facts.warnings.as_ref(),
    }
}

/// Over HTTP/2 this becomes GOAWAY: unauthenticated and anonymous clients cannot keep a connection, as upstream.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

fn unauthorized(headers: &HeaderMap, http2: bool) -> Response {
    let mut r = respond::status(&Status::unauthorized(), headers);
    if http2 {
        r.headers_mut().insert(CONNECTION, CLOSE);
    }
    r
}

/// The audit message of a failed authentication, worded as upstream words it.
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
        ("x509", Facts::of(parts).certificates.is_some()),
    ];
    let tried: Vec<&str> = tried.into_iter().filter(|(_, t)| *t).map(|(name, _)| name).collect();
    if tried.is_empty() {
        "Authentication failed, no credentials provided".to_owned()
    } else {
        format!("Authentication failed, attempted: {}", tried.join(", "))
    }
}

impl<F: Filter> Authentication<F> {
    async fn ask(&self, mut req: Request, start: Instant) -> Response {
        match self.authenticator.authenticate(credentials(&req)).await {
            Ok(Some(found)) => return self.let_in(&mut req, found, start).await,
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

    /// Passes an authenticated request on.
    fn let_in<'s>(
        &'s self,
        req: &mut Request,
        found: Identified,
        start: Instant,
    ) -> impl Future<Output = Response> + Send + use<'s, F> {
        self.success.inc();
        self.took.success.observe(start.elapsed().as_secs_f64());
        self.users[kind(&found.user.name)].inc();
        self.clean(req.headers_mut());
        if found.strip_subprotocol {
            strip_subprotocol(req.headers_mut());
        }
        let says_close = req.version() == Version::HTTP_2 && found.user.name == ANONYMOUS;
        let facts = Facts::of_mut(req);
        if found.user.name != ANONYMOUS
            && let Some(connection) = &facts.connection
        {
            connection.authenticated(&found.user.name);
        }
        facts.credential_notes = found.annotations;
        facts.caller = Some(Authenticated::mint(found.user, Key(())));
        amended(self.inner.handle(req), move |response| {
            if says_close {
                response.headers_mut().insert(CONNECTION, CLOSE);
            }
        })
    }

    async fn refuse(&self, parts: &Parts, http2: bool) -> Response {
        if let Some(audit) = &self.audit {
            let facts = Facts::of(parts);
            let seen = Seen::of_parts(
                &parts.uri,
                &parts.headers,
                facts,
                facts.info.clone().unwrap_or_default(),
            );
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
        self.remove.strip(headers);
    }
}
