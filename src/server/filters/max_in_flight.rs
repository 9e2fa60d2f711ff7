//! Turns requests away when too many run, and names the flow a request belongs to.

use super::{hold, instrument};
use crate::flowcontrol::max_in_flight::Permit;
use crate::flowcontrol::{Flow, FlowSchemas, Kind, MaxInFlight};
use crate::request::user::MASTERS;
use crate::request::{Answering, Authenticated, Handler, Request, RequestInfo, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use crate::telemetry::Telemetry;
use http::StatusCode;
use http::header::{HeaderName, RETRY_AFTER};
use std::sync::Arc;

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

impl hold::Guard for Permit {}

struct Limited {
    inner: Arc<dyn Handler>,
    limits: MaxInFlight,
    schemas: Option<Arc<FlowSchemas>>,
    telemetry: Telemetry,
}

/// The filter.
pub fn filter(limits: MaxInFlight, schemas: Option<Arc<FlowSchemas>>, telemetry: Telemetry) -> Filter {
    Filter {
        name: "max_in_flight",
        needs: &[Fact::RequestInfo, Fact::Authenticated],
        leaves: &[],
        wrap: Box::new(|inner| {
            Arc::new(Limited {
                inner,
                limits,
                schemas,
                telemetry,
            })
        }),
    }
}

impl Handler for Limited {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let info = super::info(&req);
        let long_running = info.is_long_running();
        // Long-running requests other than watches belong to no flow.
        let flow = self
            .schemas
            .as_ref()
            .filter(|_| !long_running || info.verb == "watch")
            .zip(req.extensions().get::<Authenticated>())
            .map(|(schemas, who)| schemas.classify(who.user(), &info));
        let permit = if long_running {
            None
        } else {
            match self.permit(&req, &info) {
                Some(permit) => Some(permit),
                None => {
                    let refusal = with_flow(self.refusal(&info), flow);
                    return Box::pin(std::future::ready(refusal));
                }
            }
        };
        if let Some(flow) = &flow {
            flow.dispatch();
        }
        let inner = self.inner.handle(req);
        Box::pin(async move {
            let response = inner.await;
            let response = match permit {
                Some(permit) => hold::until_sent(response, permit),
                None => response,
            };
            with_flow(response, flow)
        })
    }
}

impl Limited {
    fn permit(&self, req: &Request, info: &RequestInfo) -> Option<Permit> {
        let privileged = req
            .extensions()
            .get::<Authenticated>()
            .is_some_and(|a| a.user().in_group(MASTERS));
        self.limits.enter(Kind::of(&info.verb), privileged)
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

fn with_flow(mut response: Response, flow: Option<Flow>) -> Response {
    if let Some(flow) = flow {
        super::set_beside_backend(&mut response, FLOW_SCHEMA, flow.schema_uid);
        super::set_beside_backend(&mut response, PRIORITY_LEVEL, flow.level_uid);
    }
    response
}
