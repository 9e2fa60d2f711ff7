//! `Cache-Control: no-cache, private` on every answer whose handler does not say otherwise; beside what a backend
//! says, as upstream has it (facts 3.4.2).

use crate::request::{Answering, FromBackend, Handler, Request};
use crate::server::chain::Filter;
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

impl Handler for CacheControl {
    fn handle<'a, 't>(&'a self, req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        let inner = self.0.handle(req);
        Box::pin(async move {
            let mut response = inner.await;
            if FromBackend::of(&response).is_some() || !response.headers().contains_key(CACHE_CONTROL) {
                super::set_beside_backend(&mut response, CACHE_CONTROL, NO_CACHE);
            }
            response
        })
    }
}
