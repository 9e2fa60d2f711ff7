//! Records the time of arrival.

use crate::request::{Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};

/// The filter; wraps the inner one.
pub(crate) struct Received<F>(pub F);

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[],
    sets: &[ContextField::Received],
};

impl<F: Filter> Filter for Received<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        // Tokio's clock, because tests can pause it.
        let now = tokio::time::Instant::now().into_std();
        RequestContext::of_mut(req).received = Some(now);
        self.0.handle(req)
    }
}
