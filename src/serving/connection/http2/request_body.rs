//! Request bodies over HTTP/2, read from their stream as they arrive.

use crate::request::Body;
use crate::request::h2_body::H2Body;
use crate::request::informational::H2InformationalQueue;
use bytes::Bytes;
use h2::RecvStream;
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

struct RequestBody {
    body: H2Body,
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
    // Also if `Expect` asks for a 100: there is nothing to continue with.
    if stream.is_end_stream() {
        return Body::empty();
    }
    let expects = headers
        .get_all(EXPECT)
        .iter()
        .any(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let length = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    Body::stream(RequestBody {
        body: H2Body::new(stream, length),
        waiting: expects.then(|| Waiting {
            queue: queue.clone(),
            stream: number,
        }),
    })
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let frame = self.body.poll_frame(cx);
        // Only once, and only if the handler has to wait: a client that sends the body anyway needs no 100.
        if let Some(Waiting { queue, stream }) = self.waiting.take()
            && frame.is_pending()
        {
            queue.push(stream, StatusCode::CONTINUE, &HeaderMap::new());
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
