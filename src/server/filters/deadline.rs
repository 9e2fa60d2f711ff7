//! Determines the deadline of a request: `?timeout=`, limited by the server's own maximum. Long-running
//! requests have no deadline (upstream's `k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go`).

use super::Next;
use super::audit::{self, RequestSummary};
use crate::apimachinery::status::Status;
use crate::apimachinery::time::parse_go_duration;
use crate::audit::Audit;
use crate::request::info::first_value;
use crate::request::{Request, RequestContext, Response, ResponseFuture};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct RequestDeadline<F> {
    inner: F,
    longest: Duration,
    audit: Option<Arc<Audit>>,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::AuditId, ContextField::RequestInfo, ContextField::Received],
    sets: &[ContextField::Deadline],
};

impl<F> RequestDeadline<F> {
    /// Wraps `inner`. `longest` is `--request-timeout`; rejections are recorded in `audit`.
    pub(crate) fn new(inner: F, longest: Duration, audit: Option<Arc<Audit>>) -> Self {
        Self { inner, longest, audit }
    }

    fn refused(&self, req: &Request, error: &str) -> ResponseFuture<'static> {
        let text = format!("invalid timeout specified in the request URL - {error}");
        let status = Status::bad_request(text);
        let refusal = respond::status(&status, req.headers());
        // Recorded here, because the audit filter is further in.
        let Some(audit) = self.audit.clone() else {
            return super::ready(refusal);
        };
        let summary = RequestSummary::of(req, super::info(req));
        Box::pin(async move {
            audit::refused(&audit, summary, audit::refusal(&status)).await;
            refusal
        })
    }
}

impl<F: Filter> Filter for RequestDeadline<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        if !super::is_long_running(req) {
            let wanted = match req.uri().query().and_then(|q| first_value(q, "timeout")) {
                None => None,
                // An empty value counts as unset, as upstream.
                Some(text) if text.is_empty() => None,
                Some(text) => match parse_go_duration(&text) {
                    Ok(wanted) => wanted,
                    Err(error) => return Next::Right(self.refused(req, &error.to_string())),
                },
            };
            // A longer timeout than the server's is cut, not refused, as upstream.
            let timeout = wanted.filter(|d| *d <= self.longest).unwrap_or(self.longest);
            let context = RequestContext::of_mut(req);
            // Counted from the arrival, so that time spent in outer filters and queues is part of it.
            context.deadline = context.received.map(|received| received + timeout);
        }
        Next::Left(self.inner.handle(req))
    }
}
