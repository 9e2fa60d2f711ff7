//! Notes when the request arrived.

use crate::request::{Answering, Handler, ReceivedAt, Request};
use crate::server::chain::{Fact, Filter};
use std::sync::Arc;

struct Received(Arc<dyn Handler>);

/// The filter.
pub fn filter() -> Filter {
    Filter {
        name: "received_at",
        needs: &[],
        leaves: &[Fact::ReceivedAt],
        wrap: Box::new(|inner| Arc::new(Received(inner))),
    }
}

impl Handler for Received {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        // Tokio's clock, which tests can hold.
        let now = tokio::time::Instant::now().into_std();
        req.extensions_mut().insert(ReceivedAt(now));
        self.0.handle(req)
    }
}
