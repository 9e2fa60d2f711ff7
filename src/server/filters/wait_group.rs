//! Counts the requests that the shutdown waits for, and rejects new ones once it has begun to wait. Long-running
//! requests are not waited for; they get a signal that tells them to end.

use super::amend::amended;
use super::{Onward, hold};
use crate::apimachinery::status::Status;
use crate::request::{Facts, Request, Response};
use crate::server::chain::{Entry, Fact, Filter};
use crate::server::lifecycle::{self, Lifecycle};
use crate::server::respond::{self, NOSNIFF};
use http::header::{RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};

/// The wait group filter.
pub struct InFlight<F> {
    inner: F,
    lifecycle: Lifecycle,
}

/// The filter's declaration in the chain.
pub const ENTRY: Entry = Entry {
    name: "wait_group",
    needs: &[Fact::RequestInfo],
    leaves: &[],
};

impl<F> InFlight<F> {
    /// Wraps `inner`.
    pub fn new(inner: F, lifecycle: Lifecycle) -> Self {
        Self { inner, lifecycle }
    }
}

impl hold::Guard for lifecycle::InFlight {}

impl<F: Filter> Filter for InFlight<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let requests = &self.lifecycle.requests;
        let guard = if super::is_long_running(req) {
            Facts::of_mut(req).ending = Some(self.lifecycle.not_accepting_new_request.clone());
            None
        } else if super::exempt_from_shutdown(req) {
            Some(requests.enter_always())
        } else {
            match requests.enter() {
                Some(guard) => Some(guard),
                None => return Onward::Right(super::answered(refusal(req))),
            }
        };
        Onward::Left(amended(self.inner.handle(req), |response| {
            if let Some(guard) = guard {
                hold::until_sent(response, guard);
            }
        }))
    }
}

fn refusal(req: &Request) -> Response {
    let status = Status::service_unavailable("apiserver is shutting down");
    let mut r = respond::status(&status, req.headers());
    r.headers_mut().insert(RETRY_AFTER, 1.into());
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}
