//! The type-erased services of the request path. They are infallible: errors are responses.
//!
//! [`Handler`] is the outside of the filter chain; [`UnprotectedHandler`] is everything behind authorization.

use super::body::Body;
use super::proof::Authorized;
use async_trait::async_trait;
use std::pin::Pin;
use std::sync::Arc;

/// A request with the erased [`Body`].
pub type Request = http::Request<Body>;
/// A response with the erased [`Body`].
pub type Response = http::Response<Body>;

/// The boxed future of [`Handler::handle`] and [`UnprotectedHandler::serve`], as `async_trait` spells it.
///
/// Implementations written without `async fn` return the inner handler's future instead of wrapping it, and
/// inspect the request before they create a future. A request is some 260 bytes, and each `async fn` layer
/// would hold two copies of it. Code before the future runs as part of the call, so a panic there surfaces in
/// the caller.
pub(crate) type ResponseFuture<'t> = Pin<Box<dyn Future<Output = Response> + Send + 't>>;

/// Answers any request, without preconditions: the outermost filter implements this.
///
/// # Cancel safety
/// The future is dropped when the client disconnects. Writes, which must complete, run in an owned task.
#[async_trait]
pub(crate) trait Handler: Send + Sync + 'static {
    /// Runs the filter chain for a request and returns its response.
    async fn handle(&self, req: Request) -> Response;
}

/// A handler behind the filter chain: directors, containers, muxes, proxies, verbs. It takes the proof that
/// only the authorization filter mints, so bypassing the chain does not compile.
#[async_trait]
pub(crate) trait UnprotectedHandler: Send + Sync + 'static {
    /// Answers an authorized request. The future keeps the handler alive, so that a request in flight
    /// survives the removal of its path.
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response;
}
