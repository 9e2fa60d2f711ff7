//! Hands a transport's request to the handler: rejects malformed requests and stamps the peer on the request
//! context.

use crate::request::headers::MAX_HEADER_FIELDS;
use crate::request::peer::{ConnectionCache, PeerCertificates, RemoteAddr};
use crate::request::{Body, Handler, RequestContext, ResponseFuture, percent};
use crate::serving::activity::Activity;
use crate::telemetry::spans;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use std::sync::Arc;

/// Passes the requests of one connection to the handler.
pub(super) struct Dispatcher {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) activity: Arc<Activity>,
    pub(super) remote: RemoteAddr,
    pub(super) certificates: Option<PeerCertificates>,
    /// The per-connection cache; it also holds the queue of informational (1xx) responses.
    pub(super) cache: ConnectionCache,
}

impl Dispatcher {
    /// Stamps the peer on the request and calls the handler. `stream` is the HTTP/2 stream id.
    pub(super) fn dispatch(&self, mut request: Request<Body>, stream: Option<u32>) -> ResponseFuture<'_> {
        if let Some((status, why)) = malformed(&request) {
            return Box::pin(std::future::ready(refused(status, why, request.version())));
        }
        let context = RequestContext::of_mut(&mut request);
        context.remote = Some(self.remote);
        context.connection = Some(self.cache.clone());
        context.stream = stream;
        context.certificates = self.certificates.clone();
        let span = spans::request(&request);
        // Filters run within this call as well, before there is a future.
        let response = span.in_scope(|| self.handler.handle(request));
        match span.is_disabled() {
            true => response,
            false => Box::pin(spans::exchange(span, response)),
        }
    }
}

/// Checks that Go's server makes before any handler runs, and that hyper and h2 leave out.
fn malformed<B>(request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    if request.headers().len() > MAX_HEADER_FIELDS {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some((status, "431 Request Header Fields Too Large"));
    }
    let bad = |why| Some((StatusCode::BAD_REQUEST, why));
    // As Go's `readRequest` (`net/http/server.go`). Over HTTP/2 `:authority` takes the place of `Host`.
    if request.version() <= Version::HTTP_11 {
        let mut hosts = request.headers().get_all(HOST).iter();
        if hosts.next().is_none() && request.version() == Version::HTTP_11 {
            return bad("400 Bad Request: missing required Host header");
        }
        if hosts.next().is_some() {
            return bad("400 Bad Request: too many Host headers");
        }
    }
    if percent::malformed_escape(request.uri().path()).is_some() {
        return bad("400 Bad Request");
    }
    None
}

fn refused(status: StatusCode, why: &'static str, version: Version) -> Response<Body> {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // As Go: what follows a malformed request on the connection may not be a request at all.
    if version < Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
