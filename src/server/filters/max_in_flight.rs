//! Turns requests away when too many run.

use super::{hold, instrument};
use crate::flowcontrol::{Kind, MaxInFlight};
use crate::request::user::MASTERS;
use crate::request::{Authenticated, Handler, Request, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use crate::telemetry::Telemetry;
use async_trait::async_trait;
use http::StatusCode;
use http::header::RETRY_AFTER;
use std::sync::Arc;

struct Limited {
    inner: Arc<dyn Handler>,
    limits: MaxInFlight,
    telemetry: Telemetry,
}

/// The filter.
pub fn filter(limits: MaxInFlight, telemetry: Telemetry) -> Filter {
    Filter {
        name: "max_in_flight",
        needs: &[Fact::RequestInfo, Fact::Authenticated],
        leaves: &[],
        wrap: Box::new(|inner| {
            Arc::new(Limited {
                inner,
                limits,
                telemetry,
            })
        }),
    }
}

#[async_trait]
impl Handler for Limited {
    async fn handle(&self, req: Request) -> Response {
        let info = super::info(&req);
        if info.is_long_running() {
            return self.inner.handle(req).await;
        }
        let privileged = req
            .extensions()
            .get::<Authenticated>()
            .is_some_and(|a| a.user().in_group(MASTERS));
        let Some(permit) = self.limits.enter(Kind::of(&info.verb), privileged) else {
            let labels = instrument::labels(req.method(), &info, false);
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
