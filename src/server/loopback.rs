//! In-process requests to the gateway's own handlers, below the filters: downloads of discovery and OpenAPI,
//! controllers.

use super::mux::DynHandler;
use super::respond;
use crate::apimachinery::status::Status;
use crate::request::{Authorized, Request, RequestContext, RequestInfo, Response, UserInfo, Warnings};
use std::sync::Arc;

/// Sends a request to a director as `user`. Sets the parts of the request context that handlers expect from the
/// filters: request info, time of arrival, warnings. There is no deadline; callers set their own.
///
/// # Cancel safety
/// Dropping the future drops the handler's, with the effect that has there.
pub async fn call(handler: &DynHandler, mut req: Request, user: Arc<UserInfo>) -> Response {
    let info = match RequestInfo::resolve(req.method(), req.uri()) {
        Ok(info) => info,
        Err(error) => return respond::status(&Status::bad_request(error.to_string()), req.headers()),
    };
    let context = RequestContext::of_mut(&mut req);
    context.info = Some(Arc::new(info));
    context.received = Some(tokio::time::Instant::now().into_std());
    context.warnings = Some(Warnings::default());
    handler.serve(req, Authorized::mint(user)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Body;
    use crate::server::respond::FnHandler;

    #[tokio::test]
    async fn loopback_requests_carry_request_info() {
        let handler: DynHandler = Arc::new(FnHandler(|req: &Request| {
            Response::new(RequestInfo::of(req).map_or("", |i| &i.verb).to_owned().into())
        }));
        let req = http::Request::get("/api/v1/pods").body(Body::empty()).unwrap();
        let response = call(&handler, req, Arc::new(UserInfo::system("system:apiserver", &[]))).await;
        assert_eq!(response.body().as_full(), Some(&b"list"[..]));
    }
}
