//! The gateway's calls to itself, below the filters: discovery and OpenAPI downloads, controllers.

use super::mux::DynHandler;
use super::respond;
use crate::apimachinery::status::Status;
use crate::request::{Authorized, Facts, Request, RequestInfo, Response, UserInfo, Warnings};
use std::sync::Arc;

/// Asks a director as `user`. What handlers expect filters to have left is left here: request info, arrival, warnings.
/// There is no deadline; the caller has its own.
///
/// # Cancel safety
/// As the handler's: dropping it drops the call.
pub async fn call(handler: &DynHandler, mut req: Request, user: Arc<UserInfo>) -> Response {
    let info = match RequestInfo::resolve(req.method(), req.uri()) {
        Ok(info) => info,
        Err(error) => return respond::status(&Status::bad_request(error.to_string()), req.headers()),
    };
    let facts = Facts::of_mut(&mut req);
    facts.info = Some(Arc::new(info));
    facts.received = Some(tokio::time::Instant::now().into_std());
    facts.warnings = Some(Warnings::default());
    handler.serve(req, Authorized::mint(user)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Body;
    use crate::server::respond::Answer;

    #[tokio::test]
    async fn a_call_to_oneself_carries_what_handlers_expect() {
        let handler: DynHandler = Arc::new(Answer(|req: &Request| {
            Response::new(RequestInfo::of(req).map_or("", |i| &i.verb).to_owned().into())
        }));
        let req = http::Request::get("/api/v1/pods").body(Body::empty()).unwrap();
        let response = call(&handler, req, Arc::new(UserInfo::system("system:apiserver", &[]))).await;
        assert_eq!(response.body().as_full(), Some(&b"list"[..]));
    }
}
