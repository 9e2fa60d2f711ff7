//! Notes whether every path was installed when the request arrived: the terminal handler answers 503 or 404 by it.

use crate::request::{Facts, Request, Response};
use crate::server::chain::{Entry, Fact, Filter};
use crate::tasks::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// The filter.
pub struct MuxReady<F> {
    inner: F,
    signals: Vec<Signal>,
    complete: AtomicBool,
}

/// What it needs and leaves.
pub const ENTRY: Entry = Entry {
    name: "mux_ready",
    needs: &[],
    leaves: &[Fact::PathsIncomplete],
};

impl<F> MuxReady<F> {
    /// The filter around `inner`; complete when all signals have fired.
    pub fn new(inner: F, signals: Vec<Signal>) -> Self {
        Self {
            inner,
            signals,
            complete: AtomicBool::new(false),
        }
    }
}

impl<F: Filter> Filter for MuxReady<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        if !self.complete.load(Ordering::Relaxed) {
            if self.signals.iter().all(Signal::fired) {
                self.complete.store(true, Ordering::Relaxed);
            } else {
                Facts::of_mut(req).paths_incomplete = true;
            }
        }
        self.inner.handle(req)
    }
}
