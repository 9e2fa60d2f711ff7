//! Lets callers act as somebody else where they may. From here on the request is that somebody's: the headers that asked
//! for it are gone, and what handlers and backends see is the impersonated identity.

use crate::authz::impersonation::{Impersonation, is_impersonation_header, wanted};
use crate::authz::{Attributes, Authorizer};
use crate::request::headers::remove_all;
use crate::request::{Answering, AuditTrail, Authenticated, Handler, ImpersonatedBy, Request, Response};
use crate::server::chain::{Fact, Filter};
use crate::server::respond::{self, NOSNIFF};
use crate::telemetry::access::ImpersonationMetrics;
use http::header::X_CONTENT_TYPE_OPTIONS;
use std::sync::Arc;

struct Impersonate {
    inner: Arc<dyn Handler>,
    check: Impersonation,
}

/// The filter.
pub fn filter(authorizer: Arc<dyn Authorizer>, metrics: ImpersonationMetrics) -> Filter {
    Filter {
        name: "impersonation",
        needs: &[Fact::RequestInfo, Fact::Authenticated],
        leaves: &[],
        wrap: Box::new(|inner| {
            Arc::new(Impersonate {
                inner,
                check: Impersonation::new(authorizer).counting(metrics),
            })
        }),
    }
}

fn refused(status: &crate::apimachinery::status::Status, req: &Request) -> Response {
    let mut r = respond::status(status, req.headers());
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}

impl Handler for Impersonate {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        if req.headers().keys().any(|name| is_impersonation_header(name.as_str())) {
            Box::pin(self.impersonated(req))
        } else {
            self.inner.handle(req)
        }
    }
}

impl Impersonate {
    async fn impersonated(&self, mut req: Request) -> Response {
        let wanted = match wanted(req.headers()) {
            Ok(wanted) => wanted,
            Err(status) => return refused(&status, &req),
        };
        if let Some(wanted) = wanted {
            let Some(who) = req.extensions().get::<Authenticated>().cloned() else {
                return respond::internal_error_text(req.uri(), "no User found in the context");
            };
            let info = super::info(&req);
            match self.check.check(&wanted, &Attributes::of(who.user(), &info)).await {
                Ok(found) => {
                    tracing::debug!(user = %who.user().name, r#as = %found.user.name, "impersonation");
                    let extensions = req.extensions_mut();
                    if let Some(trail) = extensions.get::<AuditTrail>() {
                        trail.impersonated(&found.user, found.constraint);
                    }
                    extensions.insert(ImpersonatedBy {
                        user: who.user().clone(),
                        constraint: found.constraint,
                    });
                    extensions.insert(Authenticated::mint(found.user));
                }
                Err(status) => return refused(&status, &req),
            }
        }
        remove_all(req.headers_mut(), |name| is_impersonation_header(name.as_str()));
        self.inner.handle(req).await
    }
}
