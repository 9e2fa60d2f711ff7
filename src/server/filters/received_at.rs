//! Notes when the request arrived.

use crate::request::{Facts, Request, Response};
use crate::server::chain::{Entry, Fact, Filter};

/// The filter, around what stands inside of it.
pub struct Received<F>(pub F);

/// What it needs and leaves.
pub const ENTRY: Entry = Entry {
    name: "received_at",
    needs: &[],
    leaves: &[Fact::Received],
};

impl<F: Filter> Filter for Received<F> {
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, F> {
        // Tokio's clock, which tests can hold.
        let now = tokio::time::Instant::now().into_std();
        Facts::of_mut(req).received = Some(now);
        self.0.handle(req)
    }
}
