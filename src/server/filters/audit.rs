//! Records requests as the audit policy says. It stands inside authentication and outside of everything that may refuse
//! a known caller, so that refusals by impersonation, flow control and authorization are recorded, too. Requests that
//! fail before it are told to `refused` by the filters that refuse them.

mod body;
mod record;
#[cfg(test)]
mod tests;

use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::audit::event::ResponseStatus;
use crate::audit::{Audit, Stage, answer};
use crate::request::audit::CredentialNotes;
use crate::request::{AuditLevel, Authenticated, FromBackend, Handler, Request, Response, UntilUpgradeEnds};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use async_trait::async_trait;
use futures_util::FutureExt;
use http::StatusCode;
use http::header::UPGRADE;
use record::{Open, Record};
use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

struct Auditing {
    inner: Arc<dyn Handler>,
    audit: Arc<Audit>,
}

/// The filter. It is not in the chain of a server that records nothing.
pub fn filter(audit: Arc<Audit>) -> Filter {
    Filter {
        name: "audit",
        needs: &[Fact::AuditId, Fact::ReceivedAt, Fact::RequestInfo, Fact::Authenticated],
        leaves: &[],
        wrap: Box::new(|inner| Arc::new(Auditing { inner, audit })),
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

#[async_trait]
impl Handler for Auditing {
    async fn handle(&self, mut req: Request) -> Response {
        let info = super::info(&req);
        let user = req.extensions().get::<Authenticated>().map(|who| who.user().clone());
        let verdict = self.audit.decide(user.as_deref(), &info);
        if verdict.level == AuditLevel::None {
            return self.inner.handle(req).await;
        }
        let record = Arc::new(Record::new(self.audit.clone(), verdict, Seen::of(&req, info), user));
        if let Some(CredentialNotes(notes)) = req.extensions_mut().remove() {
            for (key, value) in notes {
                record.trail.annotate(key, value);
            }
        }
        if !record.submit(Stage::RequestReceived, None, None).wait().await {
            self.audit.rejected();
            return respond::internal_error_text(req.uri(), "failed to store audit event");
        }
        req.extensions_mut().insert(record.trail.clone());
        // Dropped with the request, where its client goes away or its time is over.
        let open = Arc::new(Open::new(record.clone()));
        if req.headers().contains_key(UPGRADE) {
            req.extensions_mut().insert(UntilUpgradeEnds(open.clone()));
        }
        let answered = AssertUnwindSafe(async { self.inner.handle(req).await })
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
