//! Turns requests away when too many run, and names the flow a request belongs to.

use super::{hold, instrument};
use crate::flowcontrol::max_in_flight::Permit;
use crate::flowcontrol::{FlowSchemas, Kind, MaxInFlight};
use crate::request::user::MASTERS;
use crate::request::{Authenticated, Handler, Request, RequestInfo, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use crate::telemetry::Telemetry;
use async_trait::async_trait;
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

#[async_trait]
impl Handler for Limited {
    async fn handle(&self, req: Request) -> Response {
        let info = super::info(&req);
        let long_running = info.is_long_running();
        // Long-running requests other than watches belong to no flow.
        let flow = self
            .schemas
            .as_ref()
            .filter(|_| !long_running || info.verb == "watch")
            .zip(req.extensions().get::<Authenticated>())
            .map(|(schemas, who)| schemas.classify(who.user(), &info));
        let mut response = if long_running {
            self.inner.handle(req).await
        } else {
            self.limited(req, &info).await
        };
        if let Some(flow) = flow {
            super::set_beside_backend(&mut response, FLOW_SCHEMA, flow.schema_uid);
            super::set_beside_backend(&mut response, PRIORITY_LEVEL, flow.level_uid);
        }
        response
    }
}

impl Limited {
    async fn limited(&self, req: Request, info: &RequestInfo) -> Response {
        let privileged = req
            .extensions()
            .get::<Authenticated>()
            .is_some_and(|a| a.user().in_group(MASTERS));
        let Some(permit) = self.limits.enter(Kind::of(&info.verb), privileged) else {
            let labels = instrument::labels(info, false);
            self.telemetry.requests.terminated(&labels, 429);
            let mut r = respond::error_text(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests, please try again later.",
            );
            r.headers_mut().insert(RETRY_AFTER, 1.into());
            return r;
        };
        let response = self.inner.handle(req).await;
        hold::until_sent(response, permit)
    }
}
