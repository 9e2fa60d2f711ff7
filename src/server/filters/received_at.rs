//! Notes when the request arrived.

use crate::request::{Handler, ReceivedAt, Request, Response};
use crate::server::chain::{Fact, Filter};
use async_trait::async_trait;
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

#[async_trait]
impl Handler for Received {
    async fn handle(&self, mut req: Request) -> Response {
        // Tokio's clock, which tests can hold.
        let now = tokio::time::Instant::now().into_std();
        req.extensions_mut().insert(ReceivedAt(now));
        self.0.handle(req).await
    }
}
