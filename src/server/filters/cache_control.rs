//! `Cache-Control: no-cache, private` on every answer whose handler does not say otherwise.

use crate::request::{FromBackend, Handler, Request, Response};
use crate::server::chain::Filter;
use async_trait::async_trait;
use http::header::{CACHE_CONTROL, HeaderValue};
use std::sync::Arc;

/// What is said by default.
pub const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

struct CacheControl(Arc<dyn Handler>);

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "cache_control",
        needs: &[],
        leaves: &[],
        wrap: Box::new(|inner| Arc::new(CacheControl(inner))),
    }
}

#[async_trait]
impl Handler for CacheControl {
    async fn handle(&self, req: Request) -> Response {
        let mut response = self.0.handle(req).await;
        match response.extensions().get::<FromBackend>() {
            // Upstream's proxy adds the backend's value to the one that is set.
            Some(FromBackend::Proxied) => super::put_first(response.headers_mut(), CACHE_CONTROL, NO_CACHE),
            Some(FromBackend::Verbatim) => {}
            None => drop(response.headers_mut().entry(CACHE_CONTROL).or_insert(NO_CACHE)),
        }
        response
    }
}
