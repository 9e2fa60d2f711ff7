//! Decides by when a request must be answered: `?timeout=`, at most the server's own limit. Long-running requests have
//! no deadline.

use super::audit::{self, Seen};
use crate::apimachinery::status::Status;
use crate::apimachinery::time::parse_go_duration;
use crate::audit::Audit;
use crate::request::info::first_value;
use crate::request::{Answering, Deadline, Handler, ReceivedAt, Request};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use std::sync::Arc;
use std::time::Duration;

struct RequestDeadline {
    inner: Arc<dyn Handler>,
    longest: Duration,
    audit: Option<Arc<Audit>>,
}

/// The filter; `longest` is `--request-timeout`. A refusal is told to `audit`.
pub fn filter(longest: Duration, audit: Option<Arc<Audit>>) -> Filter {
    Filter {
        name: "deadline",
        needs: &[Fact::AuditId, Fact::RequestInfo, Fact::ReceivedAt],
        leaves: &[Fact::Deadline],
        wrap: Box::new(move |inner| Arc::new(RequestDeadline { inner, longest, audit })),
    }
}

impl Handler for RequestDeadline {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        if !super::info(&req).is_long_running() {
            let wanted = match req.uri().query().and_then(|q| first_value(q, "timeout")) {
                None => None,
                Some(text) if text.is_empty() => None,
                Some(text) => match parse_go_duration(&text) {
                    Ok(d) => d,
                    Err(error) => {
                        let text = format!("invalid timeout specified in the request URL - {error}");
                        let status = Status::bad_request(text);
                        let refusal = respond::status(&status, req.headers());
                        let Some(audit) = self.audit.clone() else {
                            return Box::pin(std::future::ready(refusal));
                        };
                        let seen = Seen::of(&req, super::info(&req));
                        return Box::pin(async move {
                            audit::refused(&audit, seen, audit::refusal(&status)).await;
                            refusal
                        });
                    }
                },
            };
            let timeout = wanted.filter(|d| *d <= self.longest).unwrap_or(self.longest);
            if let Some(received) = req.extensions().get::<ReceivedAt>().copied() {
                req.extensions_mut().insert(Deadline(received.0 + timeout));
            }
        }
        self.inner.handle(req)
    }
}
