//! The bytes of a request, as they arrive on its stream.

use crate::request::Body;
use crate::request::interim::Lanes;
use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

struct Received {
    stream: RecvStream,
    /// Bytes to come, where that is known.
    left: Option<u64>,
    data_ended: bool,
    /// A client that waits until somebody wants its bytes.
    waiting: Option<Waiting>,
}

struct Waiting {
    lanes: Arc<Lanes>,
    stream: u32,
}

/// The body of a request with these headers, on the stream of this number.
pub(super) fn body(stream: RecvStream, headers: &HeaderMap, lanes: &Arc<Lanes>, number: u32) -> Body {
    if stream.is_end_stream() {
        return Body::empty();
    }
    let expects = headers
        .get_all(EXPECT)
        .iter()
        .any(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Body::stream(Received {
        left: headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok()),
        stream,
        data_ended: false,
        waiting: expects.then(|| Waiting {
            lanes: lanes.clone(),
            stream: number,
        }),
    })
}

/// A reset without an error says that nobody needs the rest (RFC 9113, 8.1).
fn early_end(e: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    (e.reason() != Some(Reason::NO_ERROR)).then_some(Err(e))
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            let data = self.stream.poll_data(cx);
            if let Some(Waiting { lanes, stream }) = self.waiting.take()
                && data.is_pending()
            {
                lanes.say(stream, StatusCode::CONTINUE, &HeaderMap::new());
            }
            match ready!(data) {
                Some(Ok(data)) => {
                    // It fails where the stream is over, of which the next poll tells.
                    let _ = self.stream.flow_control().release_capacity(data.len());
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

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}
