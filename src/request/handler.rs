//! The erased services between rooms: a request goes in, a response comes out, never an error.

use super::body::Body;
use super::proof::Authorized;
use async_trait::async_trait;

/// A request on its way in.
pub type Request = http::Request<Body>;
/// A response on its way out.
pub type Response = http::Response<Body>;

/// Anything that answers requests: the head of the filter chain, and each filter's inside.
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
}
