//! Limits the number of requests in flight. Used if priority and fairness is disabled.

use super::amend::amended;
use super::{Next, hold};
use crate::flowcontrol::max_in_flight::Permit;
use crate::flowcontrol::{MaxInFlight, RequestClass};
use crate::request::user::MASTERS;
use crate::request::{Authenticated, Request, RequestContext, RequestInfo, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::request_labels::request_labels;
use crate::server::respond;
use crate::telemetry::Telemetry;
use http::StatusCode;
use http::header::RETRY_AFTER;

impl hold::Guard for Permit {}

/// The in-flight limit filter.
pub(crate) struct MaxInFlightFilter<F> {
    inner: F,
    /// `None` disables the filter.
    limits: Option<MaxInFlight>,
    telemetry: Telemetry,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo, ContextField::Caller],
    sets: &[],
};

impl<F> MaxInFlightFilter<F> {
    /// Wraps `inner`.
    pub(crate) fn new(inner: F, limits: Option<MaxInFlight>, telemetry: Telemetry) -> Self {
        Self {
            inner,
            limits,
            telemetry,
        }
    }

    /// Takes a permit for a request unless it is long-running. The error is the 429 response for a request
    /// over the limit.
    fn enter(&self, req: &Request) -> Result<Option<Permit>, Box<Response>> {
        let context = RequestContext::of(req);
        let (Some(limits), Some(info)) = (&self.limits, &context.info) else {
            return Ok(None);
        };
        // A watch would occupy its place for hours.
        if info.is_long_running() {
            return Ok(None);
        }
        let caller = context.caller.as_ref().map(Authenticated::user);
        // An administrator must be able to act on an overloaded server.
        let privileged = caller.is_some_and(|user| user.in_group(MASTERS)) || is_health_check(info);
        let name = caller.map_or("", |user| &user.name);
        match limits.try_acquire(RequestClass::of(&info.verb), name, privileged) {
            Some(permit) => Ok(Some(permit)),
            None => Err(self.refusal(info).into()),
        }
    }

    fn refusal(&self, info: &RequestInfo) -> Response {
        let labels = request_labels(info, false);
        self.telemetry.requests.terminated(&labels, 429);
        let mut r = respond::error_text(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests, please try again later.",
        );
        r.headers_mut().insert(RETRY_AFTER, 1.into());
        r
    }
}

/// A busy server must not look dead to its liveness probes. Upstream exempts them too (flow schema `probes`).
fn is_health_check(info: &RequestInfo) -> bool {
    !info.is_resource
        && ["/livez", "/readyz", "/healthz"]
            .iter()
            .any(|path| info.path.starts_with(path))
}

impl<F: Filter> Filter for MaxInFlightFilter<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let permit = match self.enter(req) {
            Ok(permit) => permit,
            Err(refusal) => return Next::Right(super::ready(*refusal)),
        };
        Next::Left(amended(self.inner.handle(req), |response| {
            if let Some(permit) = permit {
                hold::until_sent(response, permit);
            }
        }))
    }
}
