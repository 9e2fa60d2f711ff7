//! Records whether all paths were installed when the request arrived. The terminal handler answers 404 if
//! they were, and 503 otherwise.

use crate::request::{Request, RequestContext, Response};
use crate::server::filter::{ContextField, Filter, FilterSpec, Unmet};
use crate::tasks::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// The filter that records incomplete paths.
pub(crate) struct MuxReady<F> {
    inner: F,
    signals: Vec<Signal>,
    complete: AtomicBool,
}

/// The filter's declaration in the chain.
const SPEC: FilterSpec = FilterSpec {
    needs: &[],
    sets: &[ContextField::PathsIncomplete],
};

impl<F> MuxReady<F> {
    /// Wraps `inner`. The paths are complete when all signals have fired.
    pub(crate) fn new(inner: F, signals: Vec<Signal>) -> Self {
        Self {
            inner,
            signals,
            complete: AtomicBool::new(false),
        }
    }
}

impl<F: Filter> Filter for MuxReady<F> {
    const UNMET: Unmet = SPEC.around(F::UNMET);

    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        // Signals never reset, so once all have fired a single load suffices.
        if !self.complete.load(Ordering::Relaxed) {
            if self.signals.iter().all(Signal::fired) {
                self.complete.store(true, Ordering::Relaxed);
            } else {
                RequestContext::of_mut(req).paths_incomplete = true;
            }
        }
        self.inner.handle(req)
    }
}
