//! [`H2Body`]: a body that arrives on an HTTP/2 stream, of a request or a response.

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};
use std::task::{Context, Poll, ready};

/// Reads the data and trailers of a stream, and reopens its flow-control window as data is read.
pub(crate) struct H2Body {
    stream: RecvStream,
    /// Bytes still to come, if known.
    left: Option<u64>,
    data_ended: bool,
}

impl H2Body {
    /// `length` is the announced length of the body, if there is one.
    pub(crate) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        Self {
            stream,
            left: length,
            data_ended: false,
        }
    }

    /// Polls for a chunk that is not counted as received; see [`received`](Self::received).
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        self.stream.poll_data(cx)
    }

    /// Counts a chunk as received and reopens the window by its length.
    pub(crate) fn received(&mut self, data: Bytes) -> Frame<Bytes> {
        // Only data that was handed on reopens the window, so a slow reader slows down the peer.
        if let Err(e) = self.stream.flow_control().release_capacity(data.len()) {
            tracing::debug!("an HTTP/2 stream ended with data unread: {e}");
        }
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        Frame::data(data)
    }

    /// Polls for the next frame.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        // h2 gives the trailers only after the data has ended.
        if !self.data_ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => return Poll::Ready(Some(Ok(self.received(data)))),
                Some(Err(e)) => return Poll::Ready(early_end(e)),
                None => self.data_ended = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|t| Ok(Frame::trailers(t))),
            Err(e) => early_end(e),
        })
    }

    /// Bytes still to come, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }

    /// True if the peer has ended the stream and everything has been read.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Exact if the length is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// A reset with NO_ERROR ends the body without an error (RFC 9113, section 8.1): a response is complete
/// although the request was not read whole, or a client no longer needs the rest of its request to be read.
fn early_end(e: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    (e.reason() != Some(Reason::NO_ERROR)).then_some(Err(e))
}
