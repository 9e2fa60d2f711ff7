//! [`IncomingBody`]: the body of a response as it arrives.

use crate::request::h2_body::H2Body;
use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};
use std::task::{Context, Poll, Waker};

/// The body of a response as it arrives.
pub(in crate::proxy::transport) struct IncomingBody {
    body: H2Body,
    /// The first chunk, if [`IncomingBody::take_whole`] read it without using it.
    first: Option<Bytes>,
}

impl IncomingBody {
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        // A stream that ended with its head has no body, with or without `Content-Length`.
        let length = length.or_else(|| stream.is_end_stream().then_some(0));
        Self {
            body: H2Body::new(stream, length),
            first: None,
        }
    }

    /// Returns the body if it has arrived whole, in one chunk that matches `Content-Length`, without
    /// trailers.
    pub(in crate::proxy::transport) fn take_whole(&mut self) -> Option<Bytes> {
        let announced = self.body.left()?;
        let mut idle = Context::from_waker(Waker::noop());
        // Nothing is lost on an error: h2 reports it again on the next poll.
        let Poll::Ready(Some(Ok(data))) = self.body.poll_data(&mut idle) else {
            return None;
        };
        if data.len() as u64 == announced && self.body.is_end_stream() {
            return self.body.received(data).into_data().ok();
        }
        self.first = Some(data);
        None
    }

    pub(in crate::proxy::transport) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(self.body.received(first)))),
            None => self.body.poll_frame(cx),
        }
    }

    pub(in crate::proxy::transport) fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    pub(in crate::proxy::transport) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
