//! Asks whether the caller may. The one place where a request from outside becomes an authorized one.

use super::instrument::Instrument;
use crate::authz::{Attributes, Authorizer, Decision, Verdict, forbidden};
use crate::request::{Answering, AuditTrail, Authenticated, Authorized, Handler, Request, RequestInfo, Response};
use crate::server::chain::{Fact, Gate};
use crate::server::respond::{self, NOSNIFF};
use crate::telemetry::Telemetry;
use http::StatusCode;
use http::header::X_CONTENT_TYPE_OPTIONS;
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::time::Instant;

struct Authorization {
    inner: Instrument,
    authorizer: Arc<dyn Authorizer>,
    allowed: IntCounter,
    denied: IntCounter,
    no_opinion: IntCounter,
    error: IntCounter,
    took: Took,
}

/// Durations by result.
struct Took {
    allowed: Histogram,
    denied: Histogram,
    no_opinion: Histogram,
    error: Histogram,
}

/// The innermost entry of the chain.
pub fn gate(authorizer: Arc<dyn Authorizer>, telemetry: Telemetry) -> Gate {
    let attempts = |result| telemetry.authorization_attempts.with_label_values(&[result]);
    let (allowed, denied) = (attempts("allowed"), attempts("denied"));
    let (no_opinion, error) = (attempts("no-opinion"), attempts("error"));
    let took = |result| telemetry.authorization_duration.with_label_values(&[result]);
    let took = Took {
        allowed: took("allowed"),
        denied: took("denied"),
        no_opinion: took("no-opinion"),
        error: took("error"),
    };
    Gate {
        name: "authorization",
        needs: &[Fact::RequestInfo, Fact::ReceivedAt, Fact::Authenticated],
        wrap: Box::new(move |inner| {
            Arc::new(Authorization {
                inner: Instrument::new(inner, telemetry),
                authorizer,
                allowed,
                denied,
                no_opinion,
                error,
                took,
            })
        }),
    }
}

/// What the audit event says of a decision.
fn note(trail: &AuditTrail, verdict: &Verdict) {
    let (decision, reason) = match (verdict.decision, &verdict.error) {
        (Decision::Allow, _) => ("allow", &*verdict.reason),
        // Nothing was decided.
        (_, Some(_)) => return trail.annotate(REASON, "internal error"),
        _ => ("forbid", &*verdict.reason),
    };
    trail.annotate(DECISION, decision);
    trail.annotate(REASON, reason);
}

const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";

impl Handler for Authorization {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let Some(who) = req.extensions().get::<Authenticated>().cloned() else {
            let refusal = respond::internal_error_text(req.uri(), "no user on request.");
            return Box::pin(std::future::ready(refusal));
        };
        let info = super::info(&req);
        let start = Instant::now();
        match self.authorizer.at_once(&Attributes::of(who.user(), &info)) {
            Some(verdict) => self.decided(req, &who, info, verdict, start),
            None => Box::pin(async move {
                let verdict = self.authorizer.authorize(&Attributes::of(who.user(), &info)).await;
                self.decided(req, &who, info, verdict, start).await
            }),
        }
    }
}

impl Authorization {
    fn decided(
        &self,
        req: Request,
        who: &Authenticated,
        info: Arc<RequestInfo>,
        verdict: Verdict,
        start: Instant,
    ) -> Answering<'_> {
        let took = start.elapsed().as_secs_f64();
        if let Some(trail) = req.extensions().get::<AuditTrail>() {
            note(trail, &verdict);
        }
        if verdict.decision == Decision::Allow {
            self.allowed.inc();
            self.took.allowed.observe(took);
            let proof = Authorized::mint(who.user().clone());
            return self.inner.serve(req, proof, info);
        }
        let asked = Attributes::of(who.user(), &info);
        Box::pin(std::future::ready(self.refusal(&req, &asked, verdict, took)))
    }

    fn refusal(&self, req: &Request, asked: &Attributes<'_>, verdict: Verdict, took: f64) -> Response {
        if let Some(error) = verdict.error {
            self.error.inc();
            self.took.error.observe(took);
            return respond::internal_error_text(req.uri(), &error);
        }
        match verdict.decision {
            Decision::Deny => {
                self.denied.inc();
                self.took.denied.observe(took);
            }
            _ => {
                self.no_opinion.inc();
                self.took.no_opinion.observe(took);
            }
        }
        let mut r = respond::status(&forbidden(asked, &verdict.reason), req.headers());
        debug_assert_eq!(r.status(), StatusCode::FORBIDDEN);
        r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        r
    }
}
