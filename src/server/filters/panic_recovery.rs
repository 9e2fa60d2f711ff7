//! Turns a panic into a 500 and a log line; the connection lives on.

use crate::request::{AuditId, Handler, Request, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use async_trait::async_trait;
use futures_util::FutureExt;
use http::StatusCode;
use std::panic::AssertUnwindSafe;
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

#[async_trait]
impl Handler for PanicRecovery {
    async fn handle(&self, req: Request) -> Response {
        let audit_id = req.extensions().get::<AuditId>().cloned();
        // What a handler shares with others is behind locks and atomic swaps, whose users cope with poison.
        match AssertUnwindSafe(self.0.handle(req)).catch_unwind().await {
            Ok(response) => response,
            Err(panic) => {
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
        }
    }
}
