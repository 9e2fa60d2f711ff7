//! `Cache-Control: no-cache, private` on every answer whose handler does not say otherwise; beside what a backend
//! says, as upstream has it (facts 3.4.2).

use super::amend::amended;
use crate::request::{FromBackend, Request, Response};
use crate::server::chain::{Entry, Filter};
use http::header::{CACHE_CONTROL, HeaderValue};

/// What is said by default.
pub const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

/// The filter, around what stands inside of it.
pub struct CacheControl<F>(pub F);

/// What it needs and leaves.
pub const ENTRY: Entry = Entry {
    name: "cache_control",
    needs: &[],
    leaves: &[],
};

impl<F: Filter> Filter for CacheControl<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        amended(self.0.handle(req), |response| {
            if FromBackend::of(response).is_some() || !response.headers().contains_key(CACHE_CONTROL) {
                super::set_beside_backend(response, CACHE_CONTROL, NO_CACHE);
            }
        })
    }
}
