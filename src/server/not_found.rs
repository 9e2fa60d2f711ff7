//! [`NotFound`]: the handler behind the last server.

use super::respond;
use crate::apimachinery::status::Status;
use crate::request::{Authorized, NotInRequestMetrics, Request, RequestContext, Response, UnprotectedHandler};
use async_trait::async_trait;
use std::sync::Arc;

/// The terminal handler: a plain-text 404, or a 503 if the request came before all paths were installed
/// (upstream's `k8s.io/apiserver/pkg/util/notfoundhandler/not_found_handler.go`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotFound;

#[async_trait]
impl UnprotectedHandler for NotFound {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        let mut response = match RequestContext::of(&req).paths_incomplete {
            // A client such as a controller that discovers APIs would take 404 as final.
            true => respond::status(
                &Status::service_unavailable(
                    "the request has been made before all known HTTP paths have been installed, please try again",
                )
                .with_retry_after(5),
                req.headers(),
            ),
            false => respond::not_found_text(),
        };
        // Unknown paths are chosen by clients, and upstream does not count them either.
        response.extensions_mut().insert(NotInRequestMetrics);
        response
    }
}
