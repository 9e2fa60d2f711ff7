//! Response bodies assembled from shared bytes without copying, with a known length.

use crate::request::Body;
use crate::request::body::BoxError;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Up to this size in bytes, copying is cheaper than a second frame.
const COPIED: usize = 16 * 1024;

/// A body with the bytes and a final newline.
pub(crate) fn line(bytes: Bytes) -> Body {
    if bytes.len() <= COPIED {
        let mut out = Vec::with_capacity(bytes.len() + 1);
        out.extend_from_slice(&bytes);
        out.push(b'\n');
        return Body::full(out);
    }
    Body::stream(Chunks([bytes, Bytes::from_static(b"\n")].into()))
}

/// A body that sends these pieces as frames.
pub(crate) struct Chunks(pub VecDeque<Bytes>);

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.pop_front().map(|b| Ok(Frame::data(b))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        // An exact size becomes `Content-Length`, so clients can tell a truncated response from a complete one.
        SizeHint::with_exact(self.0.iter().map(|b| b.len() as u64).sum())
    }
}
