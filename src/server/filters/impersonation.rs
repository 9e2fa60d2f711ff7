//! Impersonation: replaces the caller by the user named in the `Impersonate-*` headers if the caller may do
//! so (upstream's `k8s.io/apiserver/pkg/endpoints/filters/impersonation`). The headers are removed, so
//! handlers and backends only see the impersonated user.

use super::{Next, authentication};
use crate::authz::impersonation::{Impersonation, is_impersonation_header, requested_identity};
use crate::authz::{Attributes, Authorizer};
use crate::request::headers::remove_all;
use crate::request::{Authenticated, Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond::{self, NOSNIFF};
use crate::tasks::compute::ComputePool;
use crate::telemetry::access::ImpersonationMetrics;
use crate::telemetry::request_parts::Part;
use http::header::X_CONTENT_TYPE_OPTIONS;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Impersonate<F> {
    inner: F,
    check: Impersonation,
    /// For authorizers whose decisions compute. This filter is outside of the one that provides the pool to
    /// handlers.
    pool: Option<ComputePool>,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[ContextField::RequestInfo, ContextField::Caller],
    sets: &[],
};

impl<F> Impersonate<F> {
    /// Wraps `inner`.
    pub(crate) fn new(
        inner: F,
        authorizer: Arc<dyn Authorizer>,
        metrics: ImpersonationMetrics,
        pool: Option<ComputePool>,
    ) -> Self {
        let check = Impersonation::new(authorizer).counting(metrics);
        Self { inner, check, pool }
    }
}

fn refused(status: &crate::apimachinery::status::Status, req: &Request) -> Response {
    let mut r = respond::status(status, req.headers());
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}

impl<F: Filter> Filter for Impersonate<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        // Hardly any request impersonates; all others only pay for this scan of their header names.
        if req.headers().keys().any(|name| is_impersonation_header(name.as_str())) {
            Next::Right(Box::pin(self.impersonated(std::mem::take(req))))
        } else {
            Next::Left(self.inner.handle(req))
        }
    }
}

impl<F: Filter> Impersonate<F> {
    async fn impersonated(&self, mut req: Request) -> Response {
        let wanted = match requested_identity(req.headers()) {
            Ok(wanted) => wanted,
            Err(status) => return refused(&status, &req),
        };
        if let Some(wanted) = wanted {
            let Some(who) = RequestContext::of(&req).caller.clone() else {
                return respond::internal_error_text(req.uri(), "no User found in the context");
            };
            let info = super::info(&req);
            let since = Instant::now();
            let attributes = Attributes::of(who.user(), &info);
            let check = self.check.check(&wanted, &attributes);
            let checked = match &self.pool {
                // In the queue of the caller and not of the user that it names: nothing has been allowed yet.
                Some(pool) => pool.within_request(pool.flow(&who.user().name), None, check).await,
                None => check.await,
            };
            if let Some(trail) = &RequestContext::of(&req).audit {
                trail.took(Part::Impersonation, since.elapsed());
            }
            match checked {
                Ok(found) => {
                    tracing::debug!(user = %who.user().name, r#as = %found.user.name, "impersonation");
                    let context = RequestContext::of_mut(&mut req);
                    if let Some(trail) = &context.audit {
                        // The event keeps the caller as its user and adds the impersonated one.
                        trail.impersonated(&found.user, found.constraint);
                    }
                    context.caller = Some(Authenticated::mint(found.user, authentication::Key(())));
                }
                Err(status) => return refused(&status, &req),
            }
        }
        // Also if no identity was requested (empty headers): a backend that trusts this server must not see any of
        // them.
        remove_all(req.headers_mut(), |name| is_impersonation_header(name.as_str()));
        self.inner.handle(&mut req).await
    }
}
