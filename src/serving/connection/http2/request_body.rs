//! Request bodies over HTTP/2, read from their stream as they arrive.

use crate::request::Body;
use crate::request::informational::H2InformationalQueue;
use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

struct RequestBody {
    stream: RecvStream,
    /// Bytes still to come, if announced.
    left: Option<u64>,
    data_ended: bool,
    /// Set while the client waits for `100 Continue`.
    waiting: Option<Waiting>,
}

struct Waiting {
    queue: Arc<H2InformationalQueue>,
    stream: u32,
}

/// The body of a request with these headers on this stream. `100 Continue` is sent when the body is first
/// polled.
pub(super) fn body(stream: RecvStream, headers: &HeaderMap, queue: &Arc<H2InformationalQueue>, number: u32) -> Body {
    if stream.is_end_stream() {
        return Body::empty();
    }
    let expects = headers
        .get_all(EXPECT)
        .iter()
        .any(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Body::stream(RequestBody {
        left: headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok()),
        stream,
        data_ended: false,
        waiting: expects.then(|| Waiting {
            queue: queue.clone(),
            stream: number,
        }),
    })
}

/// A reset with NO_ERROR means that the rest of the body is not needed (RFC 9113, section 8.1).
fn early_end(e: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    (e.reason() != Some(Reason::NO_ERROR)).then_some(Err(e))
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            let data = self.stream.poll_data(cx);
            if let Some(Waiting { queue, stream }) = self.waiting.take()
                && data.is_pending()
            {
                queue.push(stream, StatusCode::CONTINUE, &HeaderMap::new());
            }
            match ready!(data) {
                Some(Ok(data)) => {
                    // Fails only if the stream has ended, which the next poll reports.
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
