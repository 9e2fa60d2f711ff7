//! The access log, at debug level.

use super::Next;
use super::amend::amended;
use crate::request::{AuditId, Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond;
use http::header::USER_AGENT;

/// The filter; wraps the inner one.
pub(crate) struct HttpLog<F>(pub F);

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::AuditId, ContextField::Received, ContextField::RequestInfo],
    sets: &[],
};

impl<F: Filter> Filter for HttpLog<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        // Checked before copying the URI and headers, which would cost every request.
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return Next::Left(self.0.handle(req));
        }
        let info = super::info(req);
        // Copied: the request is gone when the response is logged.
        let uri = respond::request_uri(req.uri()).to_owned();
        let user_agent = req.headers().get(USER_AGENT).cloned();
        let (audit_id, received) = {
            let context = RequestContext::of(req);
            (context.audit_id.clone(), context.received)
        };
        let logged = amended(self.0.handle(req), move |response| {
            tracing::debug!(
                verb = info.verb.as_str(),
                uri,
                latency_us = received.map(|r| r.elapsed().as_micros() as u64),
                user_agent = user_agent.as_ref().and_then(|u| u.to_str().ok()),
                audit_id = audit_id.as_ref().map(AuditId::text).as_deref(),
                resp = response.status().as_u16(),
                "HTTP"
            );
        });
        Next::Right(Box::pin(logged))
    }
}
