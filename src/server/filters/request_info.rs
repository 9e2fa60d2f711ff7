//! Reads the request line.

use crate::request::info::ResolveError;
use crate::request::{Answering, Handler, Request, RequestInfo};
use crate::server::chain::{Fact, Filter};
use crate::server::respond::{self, TEXT};
use http::StatusCode;
use std::sync::Arc;

struct Info(Arc<dyn Handler>);

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "request_info",
        needs: &[],
        leaves: &[Fact::RequestInfo],
        wrap: Box::new(|inner| Arc::new(Info(inner))),
    }
}

impl Handler for Info {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let refusal = match RequestInfo::resolve(req.method(), req.uri()) {
            Ok(info) => {
                req.extensions_mut().insert(Arc::new(info));
                return self.0.handle(req);
            }
            // Go's HTTP server never lets such a request line through to a handler.
            Err(ResolveError::BadEscape) => respond::bytes(StatusCode::BAD_REQUEST, TEXT, "400 Bad Request"),
            Err(error) => {
                let error = format!(
                    "failed to create RequestInfo: {error}, {}",
                    respond::request_uri(req.uri())
                );
                respond::internal_error_text(req.uri(), &error)
            }
        };
        Box::pin(std::future::ready(refusal))
    }
}
