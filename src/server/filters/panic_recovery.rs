//! Turns a panic into a 500 response and a log line; the connection stays open.

use super::Next;
use crate::request::{AuditId, Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond;
use futures_util::FutureExt;
use http::StatusCode;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The filter; wraps the inner one.
pub(crate) struct PanicRecovery<F>(pub F);

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::AuditId],
    sets: &[],
};

impl<F: Filter> Filter for PanicRecovery<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let audit_id = RequestContext::of(req).audit_id.clone();
        // Unwind safety: state shared between handlers is behind locks and atomic swaps that cope with
        // poisoning. The call itself is covered too, because handlers may do work before they return their
        // future.
        let inner = match catch_unwind(AssertUnwindSafe(|| self.0.handle(req))) {
            Ok(inner) => Next::Left(inner),
            Err(panic) => Next::Right(super::ready(panicked(&*panic, audit_id.as_ref()))),
        };
        AssertUnwindSafe(inner)
            .catch_unwind()
            .map(move |answered| answered.unwrap_or_else(|panic| panicked(&*panic, audit_id.as_ref())))
    }
}

/// The response to a panic, which is logged.
pub(in crate::server) fn panicked(panic: &(dyn Any + Send), audit_id: Option<&AuditId>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    let audit_id = audit_id.map(AuditId::text).unwrap_or_default();
    // The message may contain data of other users, so only the log gets it.
    tracing::error!(%audit_id, "panic while serving a request: {text}");
    respond::error_text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "This request caused apiserver to panic. Look in the logs for details.",
    )
}
