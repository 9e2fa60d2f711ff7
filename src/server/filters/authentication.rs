//! Finds out who calls, and removes from the request what said so.

use super::audit::Seen;
use crate::apimachinery::status::Status;
use crate::audit::Audit;
use crate::audit::event::ResponseStatus;
use crate::authn::bearer::strip_subprotocol;
use crate::authn::{Authenticator, Credentials};
use crate::request::audit::CredentialNotes;
use crate::request::info::first_value;
use crate::request::user::ANONYMOUS;
use crate::request::{Authenticated, Handler, PeerCertificates, Request, RequestInfo, Response, Warnings};
use crate::server::chain::{Fact, Filter, IdentityHeaders};
use crate::server::respond;
use crate::telemetry::Telemetry;
use async_trait::async_trait;
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

#[async_trait]
impl Handler for Authentication {
    async fn handle(&self, mut req: Request) -> Response {
        let http2 = req.version() == Version::HTTP_2;
        let (mut parts, body) = req.into_parts();
        let start = Instant::now();
        let found = self
            .authenticator
            .authenticate(Credentials {
                headers: &parts.headers,
                peer: parts.extensions.get::<PeerCertificates>().map(|p| &p.0),
                path: parts.uri.path(),
                warnings: parts.extensions.get::<Warnings>(),
            })
            .await;
        let took = start.elapsed().as_secs_f64();
        let found = match found {
            Ok(Some(found)) => {
                self.success.inc();
                self.took.success.observe(took);
                self.users[kind(&found.user.name)].inc();
                found
            }
            Ok(None) => {
                self.failure.inc();
                self.took.failure.observe(took);
                return self.refuse(&parts, http2).await;
            }
            Err(reason) => {
                self.error.inc();
                self.took.error.observe(took);
                tracing::debug!(%reason, "unable to authenticate a request");
                return self.refuse(&parts, http2).await;
            }
        };
        self.clean(&mut parts.headers);
        if found.strip_subprotocol {
            strip_subprotocol(&mut parts.headers);
        }
        if self.audit.is_some() && !found.annotations.is_empty() {
            parts.extensions.insert(CredentialNotes(found.annotations));
        }
        let anonymous = found.user.name == ANONYMOUS;
        parts.extensions.insert(Authenticated::mint(found.user));
        req = Request::from_parts(parts, body);
        let mut response = self.inner.handle(req).await;
        if http2 && anonymous {
            response.headers_mut().insert(CONNECTION, CLOSE);
        }
        response
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
        for name in &self.remove.names {
            headers.remove(name);
        }
        let prefixed = |name: &HeaderName| self.remove.prefixes.iter().any(|p| name.as_str().starts_with(p));
        let spoofed: Vec<HeaderName> = headers.keys().filter(|n| prefixed(n)).cloned().collect();
        for name in spoofed {
            headers.remove(name);
        }
    }
}
