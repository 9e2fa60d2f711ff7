//! The layers: a request id of our own, and a span per request from tower-http.

use futures_util::future::{FutureExt as _, Map};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{Request, Response};
use std::task::{Context, Poll};
use torana::gateway::GatewayBuilder;
use tower::{Layer, Service, ServiceBuilder};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::TraceLayer;
use tracing::Span;

/// The header with the request's id, in the request and in its response.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Puts the layers around a gateway. In a `ServiceBuilder` the first layer is the outermost.
pub(crate) fn around(gateway: GatewayBuilder) -> GatewayBuilder {
    gateway.layer(
        ServiceBuilder::new()
            // Log lines and debug output show `Sensitive` in the place of a token.
            .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION]))
            .layer(RequestIdLayer)
            // All that the gateway logs about a request carries its id.
            .layer(TraceLayer::new_for_http().make_span_with(span)),
    )
}

fn span<B>(request: &Request<B>) -> Span {
    let id = request.headers().get(REQUEST_ID).and_then(|v| v.to_str().ok());
    tracing::info_span!("request", id, method = %request.method(), path = request.uri().path())
}

/// Gives each request an id: the client's own if it is reasonable, otherwise a new one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestIdLayer;

impl<S> Layer<S> for RequestIdLayer {
    type Service = RequestId<S>;

    fn layer(&self, inner: S) -> RequestId<S> {
        RequestId(inner)
    }
}

/// The service of [`RequestIdLayer`].
#[derive(Clone, Debug)]
pub(crate) struct RequestId<S>(S);

impl<S, B, R> Service<Request<B>> for RequestId<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Map<S::Future, Returned<R, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let given = request.headers().get(REQUEST_ID).filter(|v| is_reasonable(v));
        let id = given.cloned().unwrap_or_else(fresh);
        request.headers_mut().insert(REQUEST_ID, id.clone());
        self.0
            .call(request)
            .map(Box::new(move |answered: Result<Response<R>, S::Error>| {
                answered.map(|mut response| {
                    response.headers_mut().insert(REQUEST_ID, id);
                    response
                })
            }))
    }
}

type Returned<R, E> = Box<dyn FnOnce(Result<Response<R>, E>) -> Result<Response<R>, E> + Send>;

/// Up to 64 visible characters: the id goes into logs and to backends.
fn is_reasonable(id: &HeaderValue) -> bool {
    (1..=64).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn fresh() -> HeaderValue {
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).expect("a UUID is a valid header value")
}
