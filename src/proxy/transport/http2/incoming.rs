//! [`IncomingBody`]: the body of a response as it arrives.

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};
use std::task::{Context, Poll, Waker, ready};

/// The body of a response as it arrives.
pub(in crate::proxy::transport) struct IncomingBody {
    stream: RecvStream,
    /// Bytes still to come, if known.
    left: Option<u64>,
    /// The first chunk, if [`IncomingBody::take_whole`] read it without using it.
    first: Option<Bytes>,
    data_ended: bool,
}

impl IncomingBody {
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        let left = length.or_else(|| stream.is_end_stream().then_some(0));
        Self {
            stream,
            left,
            first: None,
            data_ended: false,
        }
    }

    /// Returns the body if it has arrived whole, in one chunk that matches `Content-Length`, without
    /// trailers.
    pub(in crate::proxy::transport) fn take_whole(&mut self) -> Option<Bytes> {
        let announced = self.left?;
        let mut idle = Context::from_waker(Waker::noop());
        // Nothing is lost on an error: h2 reports it again on the next poll.
        let Poll::Ready(Some(Ok(data))) = self.stream.poll_data(&mut idle) else {
            return None;
        };
        if data.len() as u64 == announced && self.stream.is_end_stream() {
            self.release(data.len());
            return Some(data);
        }
        self.first = Some(data);
        None
    }

    /// Reopens the flow-control window by this many bytes.
    fn release(&mut self, bytes: usize) {
        if let Err(e) = self.stream.flow_control().release_capacity(bytes) {
            tracing::debug!("a backend's stream ended with data unread: {e}");
        }
    }

    pub(in crate::proxy::transport) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            let data = match self.first.take() {
                Some(first) => Some(Ok(first)),
                None => ready!(self.stream.poll_data(cx)),
            };
            match data {
                Some(Ok(data)) => {
                    self.release(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(e)) => return Poll::Ready(early_end(e)),
                None => self.data_ended = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|t| Ok(Frame::trailers(t))),
            Err(e) => early_end(e),
        })
    }

    pub(in crate::proxy::transport) fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.stream.is_end_stream()
    }

    pub(in crate::proxy::transport) fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// A reset with NO_ERROR means that the response is complete although the request was not read whole (RFC
/// 9113, 8.1).
fn early_end(e: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    (e.reason() != Some(Reason::NO_ERROR)).then_some(Err(e))
}
