//! Counts the requests that shutdown waits for, and refuses new ones once it waits. Long-running requests are not
//! waited for: they are told when to end.

use super::hold;
use crate::apimachinery::status::Status;
use crate::request::{Answering, Ending, Handler, Request, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::lifecycle::{self, Lifecycle};
use crate::server::respond::{self, NOSNIFF};
use http::header::{RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use std::sync::Arc;

struct InFlight {
    inner: Arc<dyn Handler>,
    lifecycle: Lifecycle,
}

/// The filter.
pub fn filter(lifecycle: Lifecycle) -> Filter {
    Filter {
        name: "wait_group",
        needs: &[Fact::RequestInfo],
        leaves: &[],
        wrap: Box::new(|inner| Arc::new(InFlight { inner, lifecycle })),
    }
}

impl hold::Guard for lifecycle::InFlight {}

impl Handler for InFlight {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let info = super::info(&req);
        if info.is_long_running() {
            let ending = self.lifecycle.not_accepting_new_request.clone();
            req.extensions_mut().insert(Ending(ending));
            return self.inner.handle(req);
        }
        let requests = &self.lifecycle.requests;
        let guard = if super::exempt_from_shutdown(&req, &info) {
            requests.enter_always()
        } else if let Some(guard) = requests.enter() {
            guard
        } else {
            return Box::pin(std::future::ready(refusal(&req)));
        };
        let inner = self.inner.handle(req);
        Box::pin(async move { hold::until_sent(inner.await, guard) })
    }
}

fn refusal(req: &Request) -> Response {
    let status = Status::service_unavailable("apiserver is shutting down");
    let mut r = respond::status(&status, req.headers());
    r.headers_mut().insert(RETRY_AFTER, 1.into());
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}
