//! A request's body as it goes out, kept while it is small: what a backend says it never looked at can then go to another
//! connection whole.

use crate::request::Body;
use crate::request::body::BoxError;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::StreamBody;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

/// Larger bodies are not kept. Their bytes are shared with what is sent, not copied.
const MOST: usize = 64 << 10;

/// What was sent of a body. Clones are the same body's.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Sent>>);

#[derive(Default)]
struct Sent {
    chunks: Vec<Bytes>,
    size: usize,
    whole: bool,
    lost: bool,
}

struct Keeping {
    body: Body,
    kept: Kept,
}

/// The body to send, and what will have been sent of it.
pub(super) fn keep(body: Body) -> (Body, Kept) {
    let kept = Kept::default();
    let keeping = Keeping {
        body,
        kept: kept.clone(),
    };
    (Body::stream(keeping), kept)
}

impl Kept {
    /// The same body once more, where all of it was sent and kept.
    pub(super) fn again(&self) -> Option<Body> {
        let mut sent = self.lock();
        if !sent.whole || sent.lost {
            return None;
        }
        let mut chunks = std::mem::take(&mut sent.chunks);
        Some(match chunks.len() {
            0 => Body::empty(),
            1 => Body::full(chunks.swap_remove(0)),
            _ => {
                let frames = chunks.into_iter().map(|c| Ok::<_, BoxError>(Frame::data(c)));
                Body::stream(StreamBody::new(futures_util::stream::iter(frames)))
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.0.lock().expect("no code panics while holding this lock")
    }
}

impl Sent {
    fn lose(&mut self) {
        self.lost = true;
        self.chunks = Vec::new();
    }
}

impl http_body::Body for Keeping {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let mut sent = self.kept.lock();
        match &next {
            None => sent.whole = true,
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) if !sent.lost && sent.size + data.len() <= MOST => {
                    sent.size += data.len();
                    sent.chunks.push(data.clone());
                    sent.whole = self.body.is_end_stream();
                }
                // Trailers are rare enough not to be kept.
                _ => sent.lose(),
            },
            Some(Err(_)) => sent.lose(),
        }
        drop(sent);
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn chunks(sizes: &[usize]) -> Body {
        let frames: Vec<_> = sizes
            .iter()
            .map(|n| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'x'; *n]))))
            .collect();
        Body::stream(StreamBody::new(futures_util::stream::iter(frames)))
    }

    #[tokio::test]
    async fn a_small_body_can_be_had_again_once_it_is_sent() {
        let (mut body, kept) = keep(chunks(&[3, 4]));
        body.frame().await.unwrap().unwrap();
        assert!(kept.again().is_none(), "not all of it was sent");
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes().len(), 4);
        assert_eq!(kept.again().unwrap().collect(100).await.unwrap().len(), 7);
        let (body, kept) = keep(chunks(&[MOST, 1]));
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes().len(), MOST + 1);
        assert!(kept.again().is_none(), "too large");
        let (body, kept) = keep(Body::full("whole"));
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes(), "whole");
        assert_eq!(kept.again().unwrap().as_full(), Some(&b"whole"[..]));
    }
}
