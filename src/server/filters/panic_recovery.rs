//! Turns a panic into a 500 and a log line; the connection lives on.

use crate::request::{Answering, AuditId, Handler, Request, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use futures_util::FutureExt;
use http::StatusCode;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

struct PanicRecovery(Arc<dyn Handler>);

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "panic_recovery",
        needs: &[Fact::AuditId],
        leaves: &[],
        wrap: Box::new(|inner| Arc::new(PanicRecovery(inner))),
    }
}

impl Handler for PanicRecovery {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let audit_id = req.extensions().get::<AuditId>().cloned();
        // What a handler shares with others is behind locks and atomic swaps, whose users cope with poison.
        // Handlers work before they return their futures, too.
        match catch_unwind(AssertUnwindSafe(|| self.0.handle(req))) {
            Ok(inner) => Box::pin(async move {
                match AssertUnwindSafe(inner).catch_unwind().await {
                    Ok(response) => response,
                    Err(panic) => panicked(&*panic, audit_id),
                }
            }),
            Err(panic) => Box::pin(std::future::ready(panicked(&*panic, audit_id))),
        }
    }
}

fn panicked(panic: &(dyn Any + Send), audit_id: Option<AuditId>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    let audit_id = audit_id.as_ref().map_or("", |a| &a.0);
    tracing::error!(audit_id, "panic while serving a request: {text}");
    respond::error_text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "This request caused apiserver to panic. Look in the logs for details.",
    )
}
