//! Impersonation: replaces the caller by the user named in the `Impersonate-*` headers if the caller may do so
//! (upstream's `k8s.io/apiserver/pkg/endpoints/filters/impersonation`). The headers are removed, so handlers and
//! backends only see the impersonated user.

use super::{Onward, authentication};
use crate::authz::impersonation::{Impersonation, is_impersonation_header, wanted};
use crate::authz::{Attributes, Authorizer};
use crate::request::headers::remove_all;
use crate::request::{Authenticated, Facts, Request, Response};
use crate::server::chain::{Entry, Fact, Filter};
use crate::server::respond::{self, NOSNIFF};
use crate::telemetry::access::ImpersonationMetrics;
use http::header::X_CONTENT_TYPE_OPTIONS;
use std::sync::Arc;

/// The impersonation filter.
pub struct Impersonate<F> {
    inner: F,
    check: Impersonation,
}

/// The filter's declaration in the chain.
pub const ENTRY: Entry = Entry {
    name: "impersonation",
    needs: &[Fact::RequestInfo, Fact::Caller],
    leaves: &[],
};

impl<F> Impersonate<F> {
    /// Wraps `inner`.
    pub fn new(inner: F, authorizer: Arc<dyn Authorizer>, metrics: ImpersonationMetrics) -> Self {
        let check = Impersonation::new(authorizer).counting(metrics);
        Self { inner, check }
    }
}

fn refused(status: &crate::apimachinery::status::Status, req: &Request) -> Response {
    let mut r = respond::status(status, req.headers());
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}

impl<F: Filter> Filter for Impersonate<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        if req.headers().keys().any(|name| is_impersonation_header(name.as_str())) {
            Onward::Right(Box::pin(self.impersonated(std::mem::take(req))))
        } else {
            Onward::Left(self.inner.handle(req))
        }
    }
}

impl<F: Filter> Impersonate<F> {
    async fn impersonated(&self, mut req: Request) -> Response {
        let wanted = match wanted(req.headers()) {
            Ok(wanted) => wanted,
            Err(status) => return refused(&status, &req),
        };
        if let Some(wanted) = wanted {
            let Some(who) = Facts::of(&req).caller.clone() else {
                return respond::internal_error_text(req.uri(), "no User found in the context");
            };
            let info = super::info(&req);
            match self.check.check(&wanted, &Attributes::of(who.user(), &info)).await {
                Ok(found) => {
                    tracing::debug!(user = %who.user().name, r#as = %found.user.name, "impersonation");
                    let facts = Facts::of_mut(&mut req);
                    if let Some(trail) = &facts.audit {
                        trail.impersonated(&found.user, found.constraint);
                    }
                    facts.caller = Some(Authenticated::mint(found.user, authentication::Key(())));
                }
                Err(status) => return refused(&status, &req),
            }
        }
        remove_all(req.headers_mut(), |name| is_impersonation_header(name.as_str()));
        self.inner.handle(&mut req).await
    }
}
