//! Parses the request line into a [`RequestInfo`].

use super::Onward;
use crate::request::info::ResolveError;
use crate::request::{Facts, Request, RequestInfo, Response};
use crate::server::chain::{Entry, Fact, Filter};
use crate::server::respond::{self, TEXT};
use http::StatusCode;
use std::sync::Arc;

/// The filter; wraps the inner one.
pub struct Info<F>(pub F);

/// The filter's declaration in the chain.
pub const ENTRY: Entry = Entry {
    name: "request_info",
    needs: &[],
    leaves: &[Fact::RequestInfo],
};

impl<F: Filter> Filter for Info<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        let refusal = match RequestInfo::resolve(req.method(), req.uri()) {
            Ok(info) => {
                Facts::of_mut(req).info = Some(Arc::new(info));
                return Onward::Left(self.0.handle(req));
            }
            // Go's HTTP server rejects such a request line before any handler runs.
            Err(ResolveError::BadEscape) => respond::bytes(StatusCode::BAD_REQUEST, TEXT, "400 Bad Request"),
            Err(error) => {
                let error = format!(
                    "failed to create RequestInfo: {error}, {}",
                    respond::request_uri(req.uri())
                );
                respond::internal_error_text(req.uri(), &error)
            }
        };
        Onward::Right(super::answered(refusal))
    }
}
