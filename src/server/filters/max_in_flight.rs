//! Limits the number of requests in flight, and adds the flow schema and priority level to responses.

use super::amend::amended;
use super::{Next, hold, instrument};
use crate::flowcontrol::max_in_flight::Permit;
use crate::flowcontrol::{Flow, FlowSchemas, MaxInFlight, RequestClass};
use crate::request::user::MASTERS;
use crate::request::{Authenticated, Request, RequestContext, RequestInfo, Response};
use crate::server::chain::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond;
use crate::telemetry::Telemetry;
use http::StatusCode;
use http::header::{HeaderName, RETRY_AFTER};
use std::sync::Arc;

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

impl hold::Guard for Permit {}

/// The in-flight limit filter.
pub struct MaxInFlightFilter<F> {
    inner: F,
    limits: MaxInFlight,
    schemas: Option<Arc<FlowSchemas>>,
    telemetry: Telemetry,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo, ContextField::Caller],
    sets: &[],
};

impl<F> MaxInFlightFilter<F> {
    /// Wraps `inner`.
    pub fn new(inner: F, limits: MaxInFlight, schemas: Option<Arc<FlowSchemas>>, telemetry: Telemetry) -> Self {
        Self {
            inner,
            limits,
            schemas,
            telemetry,
        }
    }

    /// Classifies a request, and takes a permit for it unless it is long-running. The error is the 429 response for a
    /// request over the limit.
    fn enter(&self, req: &Request) -> Result<(Option<Flow>, Option<Permit>), Box<Response>> {
        let context = RequestContext::of(req);
        let Some(info) = &context.info else {
            return Ok((None, None));
        };
        let caller = context.caller.as_ref().map(Authenticated::user);
        let long_running = info.is_long_running();
        // As upstream, long-running requests other than watches are not classified.
        let flow = self
            .schemas
            .as_ref()
            .filter(|_| !long_running || info.verb == "watch")
            .zip(caller)
            .map(|(schemas, user)| schemas.classify(user, info));
        if long_running {
            return Ok((flow, None));
        }
        let privileged = caller.is_some_and(|user| user.in_group(MASTERS)) || is_health_check(info);
        let name = caller.map_or("", |user| &user.name);
        match self.limits.try_acquire(RequestClass::of(&info.verb), name, privileged) {
            Some(permit) => Ok((flow, Some(permit))),
            None => {
                let mut refusal = self.refusal(info);
                with_flow(&mut refusal, flow);
                Err(refusal.into())
            }
        }
    }

    fn refusal(&self, info: &RequestInfo) -> Response {
        let labels = instrument::labels(info, false);
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
        let (flow, permit) = match self.enter(req) {
            Ok(entered) => entered,
            Err(refusal) => return Next::Right(super::ready(*refusal)),
        };
        if let Some(flow) = &flow {
            flow.count_dispatched();
        }
        Next::Left(amended(self.inner.handle(req), |response| {
            if let Some(permit) = permit {
                hold::until_sent(response, permit);
            }
            with_flow(response, flow);
        }))
    }
}

fn with_flow(response: &mut Response, flow: Option<Flow>) {
    if let Some(flow) = flow {
        super::prepend_header(response, FLOW_SCHEMA, flow.schema_uid);
        super::prepend_header(response, PRIORITY_LEVEL, flow.level_uid);
    }
}
