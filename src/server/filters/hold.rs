//! Keeps something alive until an answer's body has been sent.

use crate::request::body::BoxError;
use crate::request::{Body, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

struct Held<G> {
    body: Body,
    /// Dropped at the end of the body, or with it.
    guard: Option<G>,
}

/// Ties `guard` to the body. A body whose bytes are there already counts as sent: the connection's graceful close
/// takes care of the rest.
pub fn until_sent<G: Send + Unpin + 'static>(response: Response, guard: G) -> Response {
    if response.body().as_full().is_some() {
        return response;
    }
    response.map(|body| {
        Body::stream(Held {
            body,
            guard: Some(guard),
        })
    })
}

impl<G: Unpin> http_body::Body for Held<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.guard = None;
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
