//! Answers the proxy gives in its own name. They are plain text, as upstream's are (`http.Error` in
//! `kube-aggregator/pkg/apiserver/handler_proxy.go`), not `Status` objects.

use crate::aggregator::apiservice::ServiceReference;
use crate::aggregator::ledger::Full;
use crate::apimachinery::status::Status;
use crate::request::{Body, Response};
use crate::server::respond;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// What a refused redirect answers; without a newline, as upstream writes it.
pub const REDIRECT_REFUSED: &str = "the backend attempted to redirect this request, which is not permitted";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A plain-text error: the text and a newline.
pub fn error(status: StatusCode, text: &str) -> Response {
    plain(status, format!("{text}\n"))
}

/// The backend cannot be reached now.
pub fn unavailable() -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

/// The backend has as many requests or watches as it may have: a `Status`, since upstream has no such answer.
pub fn too_many(what: Full, service: &ServiceReference, headers: &HeaderMap) -> Response {
    let what = match what {
        Full::Requests => "requests are under way to",
        Full::Watches => "watches are open at",
    };
    let message = format!("too many {what} the backend {service:?} of this API group, please try again later");
    respond::status(&Status::too_many_requests(message, 1), headers)
}

/// There is no connection to the backend for one more request, and too many wait for one.
pub fn no_connection(service: &ServiceReference) -> Response {
    let message = format!("too many requests wait for a connection to the backend {service:?}, please try again later");
    let status = Status::service_unavailable(message).with_retry_after(1);
    respond::status(&status, &HeaderMap::new())
}

/// A redirect that was not passed on.
pub fn redirect_refused() -> Response {
    let mut r = Response::new(REDIRECT_REFUSED.into());
    *r.status_mut() = StatusCode::BAD_GATEWAY;
    // Upstream names no type and lets it be guessed, so there is no `nosniff` either.
    r.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    r
}

fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut r = Response::new(text.into());
    *r.status_mut() = status;
    let h = r.headers_mut();
    h.insert(header::CONTENT_TYPE, TEXT);
    h.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    r
}
