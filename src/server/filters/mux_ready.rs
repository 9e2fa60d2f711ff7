//! Notes whether every path was installed when the request arrived: the terminal handler answers 503 or 404 by it.

use crate::request::{Answering, Handler, PathsIncomplete, Request};
use crate::server::chain::{Fact, Filter};
use crate::tasks::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct MuxReady {
    inner: Arc<dyn Handler>,
    signals: Vec<Signal>,
    complete: AtomicBool,
}

/// The filter; complete when all signals have fired.
pub fn filter(signals: Vec<Signal>) -> Filter {
    Filter {
        name: "mux_ready",
        needs: &[],
        leaves: &[Fact::PathsIncomplete],
        wrap: Box::new(|inner| {
            Arc::new(MuxReady {
                inner,
                signals,
                complete: AtomicBool::new(false),
            })
        }),
    }
}

impl Handler for MuxReady {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        if !self.complete.load(Ordering::Relaxed) {
            if self.signals.iter().all(Signal::fired) {
                self.complete.store(true, Ordering::Relaxed);
            } else {
                req.extensions_mut().insert(PathsIncomplete(true));
            }
        }
        self.inner.handle(req)
    }
}
