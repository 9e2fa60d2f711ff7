//! [`until_sent`]: holds a guard, such as a seat or the count of a request in flight, until the response's body has
//! been sent or dropped.

use crate::request::body::BoxError;
use crate::request::{Body, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A value to hold for the duration of a response body.
pub(crate) trait Guard: Send + Unpin + 'static {
    /// Called for each data frame with its length.
    fn sent(&mut self, _bytes: usize) {}
}

struct GuardedBody<G> {
    body: Body,
    /// Dropped at the end of the body, or together with it.
    guard: Option<G>,
}

/// Attaches `guard` to the body. A body that is fully in memory counts as sent immediately; the connection's
/// graceful close takes care of delivering it.
pub(crate) fn until_sent<G: Guard>(response: &mut Response, mut guard: G) {
    if let Some(bytes) = response.body().as_full() {
        guard.sent(bytes.len());
        return;
    }
    let body = std::mem::take(response.body_mut());
    *response.body_mut() = Body::stream(GuardedBody {
        body,
        guard: Some(guard),
    });
}

impl<G: Guard> http_body::Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(f))) => {
                if let (Some(data), Some(guard)) = (f.data_ref(), &mut self.guard) {
                    // Counted when the connection takes the frame; what the client receives is not known here.
                    guard.sent(data.len());
                }
            }
            // At the end of the stream or on an error: the connection may keep the body for longer.
            Poll::Ready(_) => self.guard = None,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
