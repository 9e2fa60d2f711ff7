//! The erased services between rooms: a request goes in, a response comes out, never an error.

use super::body::Body;
use super::proof::Authorized;
use async_trait::async_trait;
use std::pin::Pin;
use std::sync::Arc;

/// A request on its way in.
pub type Request = http::Request<Body>;
/// A response on its way out.
pub type Response = http::Response<Body>;

/// What [`Handler::handle`] and [`UnprotectedHandler::serve`] return, written out.
///
/// A handler that has nothing to do once the answer is there returns the future of the one inside instead of wrapping
/// it, and others look at the request before they make their future: a request is some 260 bytes, and each `async fn`
/// around it would keep two of them. Work before the future is part of the call, so a panic in it is one of
/// the caller's.
pub type Answering<'t> = Pin<Box<dyn Future<Output = Response> + Send + 't>>;

/// Anything that answers requests: the head of the filter chain.
///
/// # Cancel safety
/// The future is dropped when the client goes away; handlers that must finish (writes) run their work in an owned task.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers the request.
    async fn handle(&self, req: Request) -> Response;
}

/// What stands below the chain: directors, containers, muxes, proxies, verbs. It demands the value that only the
/// authorization filter mints, so skipping the chain is a type error.
#[async_trait]
pub trait UnprotectedHandler: Send + Sync + 'static {
    /// Answers a request that was authorized.
    async fn serve(&self, req: Request, authorized: Authorized) -> Response;

    /// The same, by a handler that was looked up: the future keeps it alive. Handlers whose futures need nothing of them
    /// say so here, and save their callers a future of their own.
    fn answer(self: Arc<Self>, req: Request, authorized: Authorized) -> Answering<'static> {
        Box::pin(async move { self.serve(req, authorized).await })
    }
}
