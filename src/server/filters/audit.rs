//! The audit filter: records requests according to the audit policy (upstream's
//! `k8s.io/apiserver/pkg/endpoints/filters/audit.go`).
//!
//! It is inside authentication, and outside everything that may reject an authenticated caller, so that
//! rejections by impersonation, flow control and authorization are recorded too. Filters that reject a
//! request further out report it to `refused`.

mod body;
mod decoding;
mod record;
#[cfg(test)]
mod tests;

use super::Next;
use crate::apimachinery::status::Status;
use crate::audit::event::ResponseStatus;
use crate::audit::{Audit, Stage, Verdict};
use crate::request::{AuditLevel, Request, RequestContext, Response, UntilUpgradeEnds};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond;
use crate::telemetry::request_parts::{self, Part};
use decoding::RecordedResponse;
use futures_util::FutureExt;
use http::StatusCode;
use http::header::UPGRADE;
use record::{CompletionGuard, Record};
use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

/// Without a policy (`audit` is `None`) requests pass through untouched.
pub(crate) struct Auditing<F> {
    inner: F,
    audit: Option<Arc<Audit>>,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[
        ContextField::AuditId,
        ContextField::Received,
        ContextField::RequestInfo,
        ContextField::Caller,
    ],
    sets: &[],
};

impl<F> Auditing<F> {
    /// Wraps `inner`. Without `audit` every request passes unchanged.
    pub(crate) fn new(inner: F, audit: Option<Arc<Audit>>) -> Self {
        Self { inner, audit }
    }
}

/// Records a request that was rejected before its caller was known, as a single `ResponseStarted` event.
///
/// # Cancel safety
/// Cancel safe: the event is stored even if the future is dropped.
pub(super) async fn refused(audit: &Arc<Audit>, summary: record::RequestSummary, status: ResponseStatus) {
    let info = summary.info.clone();
    // Without a user: rules that name users or groups do not match.
    let verdict = audit.decide(None, &info);
    if verdict.level == AuditLevel::None {
        return;
    }
    let record = Record::new(audit.clone(), verdict, summary, None);
    record.submit(Stage::ResponseStarted, Some(status), None).wait().await;
}

/// The recorded form of a rejection with `status`.
pub(super) fn refusal(status: &Status) -> ResponseStatus {
    ResponseStatus::of_status(status.code, &status.to_value())
}

pub(super) use record::RequestSummary;

impl<F: Filter> Filter for Auditing<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let Some(audit) = &self.audit else {
            return Next::Left(self.inner.handle(req));
        };
        let context = RequestContext::of(req);
        let verdict = audit.decide(context.caller.as_ref().map(|who| &**who.user()), &super::info(req));
        match verdict.level {
            AuditLevel::None => Next::Left(self.inner.handle(req)),
            // Only recorded requests pay for the larger future and its allocation.
            _ => Next::Right(Box::pin(self.recorded(audit, verdict, std::mem::take(req)))),
        }
    }
}

impl<F: Filter> Auditing<F> {
    async fn recorded(&self, audit: &Arc<Audit>, verdict: Verdict, mut req: Request) -> Response {
        let user = RequestContext::of(&req).caller.as_ref().map(|who| who.user().clone());
        let summary = RequestSummary::of(&req, super::info(&req));
        let record = Arc::new(Record::new(audit.clone(), verdict, summary, user));
        // Authentication ran before the record existed and left these in the context.
        for (key, value) in std::mem::take(&mut RequestContext::of_mut(&mut req).authn_annotations) {
            record.trail.annotate(key, value);
        }
        let authentication = RequestContext::of(&req).authentication_took;
        record.trail.took(Part::Authentication, authentication);
        // Only a backend in a strict blocking mode fails here: a request that cannot be audited must not run.
        if !record.submit(Stage::RequestReceived, None, None).wait().await {
            audit.rejected();
            return respond::internal_error_text(req.uri(), "failed to store audit event");
        }
        RequestContext::of_mut(&mut req).audit = Some(record.trail.clone());
        // Records the last event when dropped: if the client disconnects or the deadline passes, no code
        // below runs.
        let completion = Arc::new(CompletionGuard::new(record.clone()));
        if req.headers().contains_key(UPGRADE) {
            // An upgraded connection outlives its response; the event is recorded when the relay drops this.
            RequestContext::of_mut(&mut req).until_upgrade_ends = Some(UntilUpgradeEnds(completion.clone()));
        }
        let answered = async { self.inner.handle(&mut req).await };
        let answered = request_parts::measured(record.trail.parts(), answered);
        // Caught here to record the panic, then raised again for the panic filter, which responds.
        let answered = AssertUnwindSafe(answered).catch_unwind().await;
        let response = match answered {
            Ok(response) => response,
            Err(panic) => {
                completion.close();
                let status = Some(panicked(&*panic));
                record.submit(Stage::Panic, status, None).wait().await;
                resume_unwind(panic)
            }
        };
        let RecordedResponse { status, object } = decoding::recorded(&record, &response).await;
        completion.answered(status.clone());
        if record.is_long_running() {
            // A watch may run for hours, so its beginning is an event of its own.
            let started = record.submit(Stage::ResponseStarted, Some(status.clone()), None);
            started.wait().await;
        }
        // The task that relays an upgraded connection holds `completion` through the request context. If
        // there is none, the event is recorded when `completion` is dropped here.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        completion.close();
        if response.body().as_full().is_some() {
            let complete = record.submit(Stage::ResponseComplete, Some(status), object);
            complete.wait().await;
            return response;
        }
        body::record(response, record, status)
    }
}

fn panicked(panic: &(dyn Any + Send)) -> ResponseStatus {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    ResponseStatus {
        code: 500,
        status: "Failure".to_owned(),
        message: format!("APIServer panic'd: {text}"),
        reason: "InternalError".to_owned(),
        ..ResponseStatus::default()
    }
}
