//! Records requests as the audit policy says. It stands inside authentication and outside of everything that may refuse
//! a known caller, so that refusals by impersonation, flow control and authorization are recorded, too. Requests that
//! fail before it are told to `refused` by the filters that refuse them.

mod body;
mod record;
#[cfg(test)]
mod tests;

use super::Onward;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::audit::event::ResponseStatus;
use crate::audit::{Audit, Stage, Verdict, answer};
use crate::request::{AuditLevel, Facts, FromBackend, Request, Response, UntilUpgradeEnds};
use crate::server::chain::{Entry, Fact, Filter};
use crate::server::respond;
use futures_util::FutureExt;
use http::StatusCode;
use http::header::UPGRADE;
use record::{Open, Record};
use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

/// The filter.
pub struct Auditing<F> {
    inner: F,
    audit: Option<Arc<Audit>>,
}

/// What it needs and leaves.
pub const ENTRY: Entry = Entry {
    name: "audit",
    needs: &[Fact::AuditId, Fact::Received, Fact::RequestInfo, Fact::Caller],
    leaves: &[],
};

impl<F> Auditing<F> {
    /// The filter around `inner`; without `audit` it lets all pass.
    pub fn new(inner: F, audit: Option<Arc<Audit>>) -> Self {
        Self { inner, audit }
    }
}

/// Records a request that is refused before anybody is known to make it: one event, `ResponseStarted`.
///
/// # Cancel safety
/// Cancel safe: storing goes on.
pub(super) async fn refused(audit: &Arc<Audit>, seen: record::Seen, status: ResponseStatus) {
    let info = seen.info.clone();
    let verdict = audit.decide(None, &info);
    if verdict.level == AuditLevel::None {
        return;
    }
    let record = Record::new(audit.clone(), verdict, seen, None);
    record.submit(Stage::ResponseStarted, Some(status), None).wait().await;
}

/// What a refusal by `status` is recorded as.
pub(super) fn refusal(status: &Status) -> ResponseStatus {
    ResponseStatus::of_status(status.code, &status.to_value())
}

pub(super) use record::Seen;

impl<F: Filter> Filter for Auditing<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let Some(audit) = &self.audit else {
            return Onward::Left(self.inner.handle(req));
        };
        let facts = Facts::of(req);
        let verdict = audit.decide(facts.caller.as_ref().map(|who| &**who.user()), &super::info(req));
        match verdict.level {
            AuditLevel::None => Onward::Left(self.inner.handle(req)),
            _ => Onward::Right(Box::pin(self.recorded(audit, verdict, std::mem::take(req)))),
        }
    }
}

impl<F: Filter> Auditing<F> {
    async fn recorded(&self, audit: &Arc<Audit>, verdict: Verdict, mut req: Request) -> Response {
        let user = Facts::of(&req).caller.as_ref().map(|who| who.user().clone());
        let seen = Seen::of(&req, super::info(&req));
        let record = Arc::new(Record::new(audit.clone(), verdict, seen, user));
        for (key, value) in std::mem::take(&mut Facts::of_mut(&mut req).credential_notes) {
            record.trail.annotate(key, value);
        }
        if !record.submit(Stage::RequestReceived, None, None).wait().await {
            audit.rejected();
            return respond::internal_error_text(req.uri(), "failed to store audit event");
        }
        Facts::of_mut(&mut req).audit = Some(record.trail.clone());
        // Dropped with the request, where its client goes away or its time is over.
        let open = Arc::new(Open::new(record.clone()));
        if req.headers().contains_key(UPGRADE) {
            Facts::of_mut(&mut req).until_upgrade_ends = Some(UntilUpgradeEnds(open.clone()));
        }
        let answered = AssertUnwindSafe(async { self.inner.handle(&mut req).await })
            .catch_unwind()
            .await;
        let response = match answered {
            Ok(response) => response,
            Err(panic) => {
                open.close();
                let status = Some(panicked(&*panic));
                record.submit(Stage::Panic, status, None).wait().await;
                resume_unwind(panic)
            }
        };
        let Told { status, object } = told(&record, &response);
        open.answered(status.clone());
        if record.is_long_running() {
            let started = record.submit(Stage::ResponseStarted, Some(status.clone()), None);
            started.wait().await;
        }
        // Whoever carries an upgraded connection holds what is open; where nobody does, it ends here.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        open.close();
        if response.body().as_full().is_some() {
            let object = object.as_ref().map(|o| record.trail.encoded(o));
            let complete = record.submit(Stage::ResponseComplete, Some(status), object);
            complete.wait().await;
            return response;
        }
        body::record(response, record, status)
    }
}

/// What the head of an answer, and a body that is there already, say.
struct Told {
    status: ResponseStatus,
    object: Option<Value>,
}

fn told(record: &Record, response: &Response) -> Told {
    let code = response.status().as_u16();
    let everything = record.wants_answers();
    // Of what backends answer only the code is recorded; they have audit logs of their own.
    let worth = FromBackend::of(response).is_none() && (everything || code >= 400 || record.is_delete());
    let full = response
        .body()
        .as_full()
        .filter(|b| worth && b.len() <= answer::LARGEST);
    let object = full.and_then(|bytes| answer::decode(response.headers(), bytes));
    Told {
        status: answer::status(code, object.as_ref()),
        object: object.filter(|_| everything),
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
