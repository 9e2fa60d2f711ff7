//! Counts the requests that the shutdown waits for, and rejects new ones once it waits. Long-running requests
//! are not waited for; a signal tells them to end.

use super::amend::amended;
use super::{Next, hold};
use crate::apimachinery::status::Status;
use crate::request::{Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::lifecycle::{self, Lifecycle};
use crate::server::respond::{self, NOSNIFF};
use http::header::{RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};

pub(crate) struct WaitGroupFilter<F> {
    inner: F,
    lifecycle: Lifecycle,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo],
    sets: &[],
};

impl<F> WaitGroupFilter<F> {
    /// Wraps `inner`.
    pub(crate) fn new(inner: F, lifecycle: Lifecycle) -> Self {
        Self { inner, lifecycle }
    }
}

impl hold::Guard for lifecycle::InFlight {}

impl<F: Filter> Filter for WaitGroupFilter<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let requests = &self.lifecycle.requests;
        // Long-running requests are not refused during shutdown: they end at once by the signal.
        let guard = if super::is_long_running(req) {
            RequestContext::of_mut(req).ending = Some(self.lifecycle.not_accepting_new_request.clone());
            None
        } else if super::exempt_from_shutdown(req) {
            // Load balancers must see `/readyz` fail, not be refused; upstream exempts the same requests.
            Some(requests.enter_always())
        } else {
            match requests.enter() {
                Some(guard) => Some(guard),
                None => return Next::Right(super::ready(refusal(req))),
            }
        };
        Next::Left(amended(self.inner.handle(req), |response| {
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
