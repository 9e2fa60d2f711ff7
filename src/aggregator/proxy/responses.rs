//! Responses of the proxy itself. Like upstream's they are plain text, not `Status` objects (`http.Error` in
//! `kube-aggregator/pkg/apiserver/handler_proxy.go`), except where upstream has no such response.

use crate::aggregator::apiservice::ServiceReference;
use crate::aggregator::backend_stats::LimitReached;
use crate::apimachinery::status::Status;
use crate::request::{Body, FromBackend, NotInRequestMetrics, Response};
use crate::server::respond;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// Body of the response to a refused redirect. Upstream writes it without a newline, too.
pub(crate) const REDIRECT_REFUSED: &str = "the backend attempted to redirect this request, which is not permitted";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A plain-text error as Go's `http.Error` writes it: the text and a newline.
pub(crate) fn error(status: StatusCode, text: &str) -> Response {
    plain(status, format!("{text}\n"))
}

/// 503: the backend is not available or cannot be resolved.
pub(crate) fn unavailable() -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

/// 429: the backend has reached its limit of requests or watches. A `Status`, since upstream has no such
/// response.
pub(crate) fn too_many(what: LimitReached, service: &ServiceReference, headers: &HeaderMap) -> Response {
    let what = match what {
        LimitReached::Requests => "requests are under way to",
        LimitReached::Watches => "watches are open at",
    };
    let message = format!("too many {what} the backend {service:?} of this API group, please try again later");
    respond::status(&Status::too_many_requests(message, 1), headers)
}

/// 503: no connection to the backend is free and too many requests wait for one.
pub(crate) fn no_connection(service: &ServiceReference) -> Response {
    let message = format!("too many requests wait for a connection to the backend {service:?}, please try again later");
    let status = Status::service_unavailable(message).with_retry_after(1);
    respond::status(&status, &HeaderMap::new())
}

/// 502 in place of a redirect, if the gateway is configured to refuse them.
pub(crate) fn redirect_refused() -> Response {
    let mut r = Response::new(REDIRECT_REFUSED.into());
    *r.status_mut() = StatusCode::BAD_GATEWAY;
    // Upstream sets no type and leaves it to Go's content sniffing, hence no `nosniff` either.
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

/// Marks the proxy's own responses as counted already. Backends' responses are marked by their origin.
pub(super) fn without_request_metrics(mut response: Response) -> Response {
    if FromBackend::of(&response).is_none() {
        response.extensions_mut().insert(NotInRequestMetrics);
    }
    response
}

pub(super) fn unreachable_backend(why: &str) -> Response {
    error(
        StatusCode::SERVICE_UNAVAILABLE,
        &format!("error trying to reach service: {why}"),
    )
}
