//! Sets `Cache-Control: no-cache, private` unless the handler has set the header itself. On a proxied
//! response it is added in front of the backend's own value, as upstream does.

use super::amend::amended;
use crate::request::{FromBackend, Request, Response};
use crate::server::filter::{Filter, FilterSpec, Unmet};
use http::header::{CACHE_CONTROL, HeaderValue};

/// The value for responses without a `Cache-Control` of their own: they depend on the caller, so no cache may
/// share them.
pub(crate) const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

/// The filter; wraps the inner one.
pub(crate) struct CacheControl<F>(pub F);

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec { needs: &[], sets: &[] };

impl<F: Filter> Filter for CacheControl<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        amended(self.0.handle(req), |response| {
            if FromBackend::of(response).is_some() || !response.headers().contains_key(CACHE_CONTROL) {
                super::prepend_header(response, CACHE_CONTROL, NO_CACHE);
            }
        })
    }
}
