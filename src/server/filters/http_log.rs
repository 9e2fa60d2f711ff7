//! The access log, at debug level.

use crate::request::{Answering, AuditId, Handler, ReceivedAt, Request};
use crate::server::chain::{Fact, Filter};
use crate::server::respond;
use http::header::USER_AGENT;
use std::sync::Arc;

struct HttpLog(Arc<dyn Handler>);

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "http_log",
        needs: &[Fact::AuditId, Fact::ReceivedAt, Fact::RequestInfo],
        leaves: &[],
        wrap: Box::new(|inner| Arc::new(HttpLog(inner))),
    }
}

impl Handler for HttpLog {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return self.0.handle(req);
        }
        let info = super::info(&req);
        let uri = respond::request_uri(req.uri()).to_owned();
        let user_agent = req.headers().get(USER_AGENT).cloned();
        let audit_id = req.extensions().get::<AuditId>().cloned();
        let received = req.extensions().get::<ReceivedAt>().copied();
        let inner = self.0.handle(req);
        Box::pin(async move {
            let response = inner.await;
            tracing::debug!(
                verb = info.verb.as_str(),
                uri,
                latency_us = received.map(|r| r.0.elapsed().as_micros() as u64),
                user_agent = user_agent.as_ref().and_then(|u| u.to_str().ok()),
                audit_id = audit_id.as_ref().map(|a| &*a.0),
                resp = response.status().as_u16(),
                "HTTP"
            );
            response
        })
    }
}
