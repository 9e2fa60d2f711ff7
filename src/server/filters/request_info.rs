//! Parses the request line into a [`RequestInfo`].

use super::Next;
use crate::apimachinery::status::Status;
use crate::request::info::ResolveError;
use crate::request::{Request, RequestContext, RequestInfo, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::server::respond::{self, TEXT};
use http::StatusCode;
use std::sync::Arc;

/// The filter; wraps the inner one.
pub(crate) struct Info<F>(pub F);

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[],
    sets: &[ContextField::RequestInfo],
};

impl<F: Filter> Filter for Info<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let refusal = match RequestInfo::resolve(req.method(), req.uri()) {
            Ok(info) => {
                // Shared, because filters keep it beyond the request, which is taken by the handler.
                RequestContext::of_mut(req).info = Some(Arc::new(info));
                return Next::Left(self.0.handle(req));
            }
            // Go's HTTP server rejects such a request line before any handler runs.
            Err(ResolveError::BadEscape) => respond::bytes(StatusCode::BAD_REQUEST, TEXT, "400 Bad Request"),
            Err(error @ ResolveError::TooManyParameters) => {
                respond::status(&Status::bad_request(error.to_string()), req.headers())
            }
            Err(error) => {
                let error = format!(
                    "failed to create RequestInfo: {error}, {}",
                    respond::request_uri(req.uri())
                );
                respond::internal_error_text(req.uri(), &error)
            }
        };
        Next::Right(super::ready(refusal))
    }
}
