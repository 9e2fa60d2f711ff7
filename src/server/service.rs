//! The filter chain as a [`tower::Service`], and `tower` layers around it, for programs that embed a server.
//!
//! [`GatewayService`] calls a [`Handler`]; [`layered`] makes a handler of a layer around one, and [`guarded`]
//! of one that may panic. A server without layers uses none of this: its chain is called directly.

use super::filters::panic_recovery::panicked;
use super::respond;
use crate::request::body::BoxError;
use crate::request::{Body, Handler, Request, Response, ResponseFuture};
use bytes::Bytes;
use http::StatusCode;
use std::any::Any;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{Layer, Service};
use tower_http::catch_panic::CatchPanicLayer;

/// A filter chain, and any layers around it, as a [`tower::Service`]. It is always ready and never fails:
/// errors are responses. Clones share the chain.
///
/// A layer put around the service sees the requests of this program only, not those to the port:
///
/// ```no_run
/// use torana::gateway::{Body, Gateway};
/// use tower::{ServiceBuilder, ServiceExt as _};
///
/// # async fn ask(gateway: Gateway) -> Result<(), Box<dyn std::error::Error>> {
/// let named = |mut request: http::Request<Body>| {
///     request.headers_mut().insert("user-agent", http::HeaderValue::from_static("me"));
///     request
/// };
/// let service = ServiceBuilder::new().map_request(named).service(gateway.service());
/// let response = service.oneshot(http::Request::get("/version").body(Body::empty())?).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GatewayService(Arc<dyn Handler>);

impl GatewayService {
    /// A service that calls this handler.
    pub(crate) fn new(handler: Arc<dyn Handler>) -> Self {
        Self(handler)
    }
}

impl<B> Service<http::Request<B>> for GatewayService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, req: http::Request<B>) -> Self::Future {
        let handler = self.0.clone();
        // Boxed, so that the future does not reserve its space after the handler has taken it.
        let req = Box::new(req.map(Body::of));
        Box::pin(async move { Ok(handler.handle(unboxed(req)).await) })
    }
}

/// Frees the box at once. One that is moved out of lives on as long as its variable.
#[expect(clippy::boxed_local, reason = "the box is what it is about")]
fn unboxed<T>(boxed: Box<T>) -> T {
    *boxed
}

/// Puts a layer around `handler`. The layer may respond to requests itself, change them, replace bodies, and
/// fail: a failure is logged and results in a 500.
///
/// Each request calls a clone of the layer's service, once the clone is ready. A service that is not `Clone`,
/// such as tower's rate limit, needs a `tower::buffer::BufferLayer` around it.
pub(crate) fn layered<L, B>(handler: Arc<dyn Handler>, layer: &L) -> Arc<dyn Handler>
where
    L: Layer<GatewayService>,
    L::Service: Service<Request, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request>>::Error: Into<BoxError>,
    <L::Service as Service<Request>>::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Arc::new(Layered(layer.layer(GatewayService(handler))))
}

/// Answers 500 if a layer panics, as the chain does for its filters. Otherwise the client would see a closed
/// connection or a reset stream.
pub(crate) fn guarded(handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
    layered(
        handler,
        &CatchPanicLayer::custom(|panic: Box<dyn Any + Send>| panicked(&*panic, None)),
    )
}

/// Adapts a service to [`Handler`].
struct Layered<S>(S);

impl<S, B> Handler for Layered<S>
where
    S: Service<Request, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn handle<'a, 't>(&'a self, req: Request) -> ResponseFuture<'t>
    where
        'a: 't,
        Self: 't,
    {
        // `poll_ready` and `call` need `&mut`, and the readiness of a service belongs to the clone that was polled.
        let service = self.0.clone();
        Box::pin(async move {
            match called(service, req).await {
                Ok(response) => response.map(Body::of),
                Err(error) => {
                    let error: BoxError = error.into();
                    // The reason may contain internals, so the client does not see it.
                    tracing::error!(%error, "a layer around the filter chain failed");
                    respond::error_text(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
                }
            }
        })
    }
}

async fn called<S: Service<Request>>(mut service: S, req: Request) -> Result<S::Response, S::Error> {
    // Tower's contract: a service may panic if it is called before it is ready.
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(req).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceBuilder;
    use tower::layer::layer_fn;

    /// Answers with the request's header `seen` and its body.
    struct Echo;

    #[async_trait::async_trait]
    impl Handler for Echo {
        async fn handle(&self, req: Request) -> Response {
            let mut response = Response::new(Body::empty());
            if let Some(seen) = req.headers().get("seen") {
                response.headers_mut().insert("seen", seen.clone());
            }
            *response.body_mut() = req.into_body();
            response
        }
    }

    /// Appends its name to the header `seen`, and replaces the bodies by streams of another type.
    #[derive(Clone)]
    struct Mark<S>(S, &'static str);

    impl<S> Service<Request> for Mark<S>
    where
        S: Service<http::Request<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>>>,
    {
        type Response = S::Response;
        type Error = S::Error;
        type Future = S::Future;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
            self.0.poll_ready(cx)
        }

        fn call(&mut self, mut req: Request) -> S::Future {
            use http_body_util::BodyExt as _;
            let seen = req.headers().get("seen").and_then(|v| v.to_str().ok()).unwrap_or("");
            let seen = format!("{seen}{}", self.1).parse().unwrap();
            req.headers_mut().insert("seen", seen);
            self.0.call(req.map(|body| body.boxed_unsync()))
        }
    }

    fn request() -> Request {
        Request::new(Body::full("text"))
    }

    #[tokio::test]
    async fn a_layer_may_replace_the_request_and_its_body() {
        let handler = layered(Arc::new(Echo), &layer_fn(|inner| Mark(inner, "a")));
        let response = handler.handle(request()).await;
        assert_eq!(response.headers()["seen"], "a");
        assert_eq!(response.into_body().collect(10).await.unwrap(), "text");
    }

    #[tokio::test]
    async fn a_later_layer_is_further_out() {
        let inner = layered(Arc::new(Echo), &layer_fn(|inner| Mark(inner, "inner")));
        let handler = layered(inner, &layer_fn(|inner| Mark(inner, "outer,")));
        assert_eq!(handler.handle(request()).await.headers()["seen"], "outer,inner");
    }

    #[derive(Clone)]
    struct Fails;

    impl Service<Request> for Fails {
        type Response = Response;
        type Error = BoxError;
        type Future = std::future::Ready<Result<Response, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err("never ready".into()))
        }

        fn call(&mut self, _: Request) -> Self::Future {
            unreachable!("it is never ready")
        }
    }

    #[tokio::test]
    async fn a_failed_layer_is_answered_500_without_its_reason() {
        let handler = layered(Arc::new(Echo), &layer_fn(|_| Fails));
        let response = handler.handle(request()).await;
        assert_eq!(response.status(), 500);
        assert_eq!(response.body().as_full(), Some(&b"internal error\n"[..]));
    }

    #[derive(Clone)]
    struct Panics;

    impl Service<Request> for Panics {
        type Response = Response;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            panic!("a test's own panic")
        }

        fn call(&mut self, _: Request) -> Self::Future {
            unreachable!("it is never ready")
        }
    }

    #[tokio::test]
    async fn a_layer_that_panics_is_answered_500() {
        let handler = guarded(layered(Arc::new(Echo), &layer_fn(|_| Panics)));
        assert_eq!(handler.handle(request()).await.status(), 500);
        let handler = guarded(Arc::new(Echo));
        assert_eq!(
            handler.handle(request()).await.into_body().collect(10).await.unwrap(),
            "text"
        );
    }

    #[tokio::test]
    async fn layers_of_tower_http_can_be_used() {
        let layers = ServiceBuilder::new()
            .layer(tower_http::trace::TraceLayer::new_for_http())
            .layer(tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer::new([
                http::header::AUTHORIZATION,
            ]));
        let response = layered(Arc::new(Echo), &layers).handle(request()).await;
        assert_eq!(response.into_body().collect(10).await.unwrap(), "text");
    }
}
