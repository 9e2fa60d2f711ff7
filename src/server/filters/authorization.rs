//! Authorizes requests (upstream's `k8s.io/apiserver/pkg/endpoints/filters/authorization.go`). The only place
//! where a request is given its [`Authorized`] proof.

use super::Next;
use super::instrument::Instrument;
use crate::authz::{Attributes, Authorizer, Decision, Verdict, forbidden};
use crate::request::{
    AuditTrail, Authenticated, Authorized, Minted, Request, RequestContext, RequestInfo, Response, UnprotectedHandler,
};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond::{self, NOSNIFF};
use crate::telemetry::Telemetry;
use crate::telemetry::request_parts::Part;
use http::StatusCode;
use http::header::X_CONTENT_TYPE_OPTIONS;
use prometheus::{Histogram, IntCounter};
use std::sync::Arc;
use std::time::Instant;

/// The innermost filter: authorizes, then calls the director with the proof.
pub(crate) struct Authorization {
    inner: Instrument,
    authorizer: Arc<dyn Authorizer>,
    allowed: IntCounter,
    denied: IntCounter,
    no_opinion: IntCounter,
    error: IntCounter,
    took: Durations,
}

/// Histograms of the authorization time, by result.
struct Durations {
    allowed: Histogram,
    denied: Histogram,
    no_opinion: Histogram,
    error: Histogram,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo, ContextField::Received, ContextField::Caller],
    sets: &[],
};

/// The key to [`Authorized::mint`], which only this filter can make.
pub(crate) struct Key(());

impl Minted for Authorized {
    type Key = Key;
}

impl Authorization {
    /// Connects the chain to `inner`, the director.
    pub(crate) fn new(
        inner: Arc<dyn UnprotectedHandler>,
        authorizer: Arc<dyn Authorizer>,
        telemetry: Telemetry,
    ) -> Self {
        let attempts = |result| telemetry.authorization_attempts.with_label_values(&[result]);
        let took = |result| telemetry.authorization_duration.with_label_values(&[result]);
        Self {
            authorizer,
            allowed: attempts("allowed"),
            denied: attempts("denied"),
            no_opinion: attempts("no-opinion"),
            error: attempts("error"),
            took: Durations {
                allowed: took("allowed"),
                denied: took("denied"),
                no_opinion: took("no-opinion"),
                error: took("error"),
            },
            inner: Instrument::new(inner, telemetry),
        }
    }
}

/// Annotates the audit event with the decision.
fn annotate_trail(trail: &AuditTrail, verdict: &Verdict) {
    let (decision, reason) = match (verdict.decision, &verdict.error) {
        (Decision::Allow, _) => ("allow", &*verdict.reason),
        // The authorizer failed, so no decision was reached.
        (_, Some(_)) => return trail.annotate(REASON, "internal error"),
        _ => ("forbid", &*verdict.reason),
    };
    trail.annotate(DECISION, decision);
    trail.annotate(REASON, reason);
}

const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";

impl Filter for Authorization {
    const UNMET: Unmet = SPEC.around(Unmet::NONE);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s> {
        let context = RequestContext::of(req);
        // Not reached with the default chain; upstream answers the same.
        let Some(who) = context.caller.clone() else {
            let refusal = respond::internal_error_text(req.uri(), "no user on request.");
            return Next::Right(super::ready(refusal));
        };
        let info = super::info(req);
        let start = Instant::now();
        // Most decisions (RBAC, system:masters) need no I/O; only those that do pay for a boxed future.
        match self.authorizer.authorize_sync(&Attributes::of(who.user(), &info)) {
            Some(verdict) => self.decided(req, &who, info, verdict, start),
            None => Next::Right(Box::pin(self.ask(std::mem::take(req), who, info, start))),
        }
    }
}

impl Authorization {
    async fn ask(&self, mut req: Request, who: Authenticated, info: Arc<RequestInfo>, start: Instant) -> Response {
        let verdict = self.authorizer.authorize(&Attributes::of(who.user(), &info)).await;
        self.decided(&mut req, &who, info, verdict, start).await
    }

    fn decided<'s>(
        &'s self,
        req: &mut Request,
        who: &Authenticated,
        info: Arc<RequestInfo>,
        verdict: Verdict,
        start: Instant,
    ) -> Next<'s, impl Future<Output = Response> + Send + use<'s>> {
        let took = start.elapsed();
        if let Some(trail) = &RequestContext::of(req).audit {
            annotate_trail(trail, &verdict);
            trail.took(Part::Authorization, took);
        }
        let took = took.as_secs_f64();
        if verdict.decision == Decision::Allow {
            self.allowed.inc();
            self.took.allowed.observe(took);
            let proof = Authorized::mint(who.user().clone(), Key(()));
            return Next::Left(self.inner.serve(std::mem::take(req), proof, info));
        }
        let asked = Attributes::of(who.user(), &info);
        Next::Right(super::ready(self.refusal(req, &asked, verdict, took)))
    }

    fn refusal(&self, req: &Request, asked: &Attributes<'_>, verdict: Verdict, took: f64) -> Response {
        // 500 and not 403: the caller may be allowed, so clients should retry.
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
            // `Allow` is not refused.
            _ => {
                self.no_opinion.inc();
                self.took.no_opinion.observe(took);
            }
        }
        let mut r = respond::status(&forbidden(asked, &verdict.reason), req.headers());
        debug_assert_eq!(r.status(), StatusCode::FORBIDDEN);
        // The message repeats names from the path; a browser must not take it for a page.
        r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        r
    }
}
