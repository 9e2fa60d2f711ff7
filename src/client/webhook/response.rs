//! Reads the bodies of responses, each within a size limit, and only a few large ones of a webhook at the
//! same time: the objects of one caller may need hundreds of reviews, whose responses would together use a
//! multiple of the limit.

use bytes::{Buf as _, Bytes};
use http_body::Body;
use http_body_util::BodyExt as _;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A response up to this many bytes needs no permit.
const SMALL: usize = 64 << 10;
/// Maximum number of larger responses in memory at the same time.
const LARGE_RESPONSES: usize = 4;

/// The permits of one webhook's large responses.
pub(super) struct ResponsePermits(Arc<Semaphore>);

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum ReadError<E> {
    /// It exceeds the limit.
    TooLarge,
    /// It broke off.
    Broken(E),
}

/// A body with its permit, which is released when the last reference to the bytes is dropped.
struct PermittedBody {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for PermittedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for ResponsePermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_RESPONSES)))
    }
}

impl ResponsePermits {
    /// Reads a body of up to `max` bytes. One that turns out to be large waits for a permit before the rest
    /// is read; the permit is released when the result is dropped.
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Cancel safety
    /// Not cancel safe: what was read is lost.
    pub(super) async fn read<B: Body>(&self, body: B, max: usize) -> Result<Bytes, ReadError<B::Error>> {
        let mut body = pin!(body);
        let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if expected > max {
            return Err(ReadError::TooLarge);
        }
        // Not what the header announces: without a permit, only a small response may take memory.
        let mut bytes = Vec::with_capacity(expected.min(SMALL));
        let mut permit = None;
        while let Some(frame) = body.frame().await {
            let Ok(mut data) = frame.map_err(ReadError::Broken)?.into_data() else {
                continue;
            };
            let size = bytes.len() + data.remaining();
            if size > max {
                return Err(ReadError::TooLarge);
            }
            if permit.is_none() && size > SMALL {
                permit = Some(self.permit().await);
                // Both are at most `max`, so the webhook cannot make us reserve more.
                bytes.reserve_exact(expected.max(size) - bytes.len());
            }
            while data.has_remaining() {
                let chunk = data.chunk();
                bytes.extend_from_slice(chunk);
                data.advance(chunk.len());
            }
        }
        Ok(match permit {
            None => bytes.into(),
            Some(permit) => Bytes::from_owner(PermittedBody { bytes, _permit: permit }),
        })
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        let permit = self.0.clone().acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use http_body_util::{Full, StreamBody};

    fn body(size: usize) -> Full<Bytes> {
        Full::new(vec![b'x'; size].into())
    }

    /// A body of unknown size.
    fn chunked(chunks: usize, size: usize) -> impl Body<Data = Bytes, Error = std::convert::Infallible> {
        let frames = (0..chunks).map(move |_| Ok(http_body::Frame::data(Bytes::from(vec![b'x'; size]))));
        StreamBody::new(futures_util::stream::iter(frames))
    }

    #[tokio::test]
    async fn body_is_read_up_to_its_limit() {
        let permits = ResponsePermits::default();
        for size in [0, 1, SMALL, SMALL + 1] {
            assert_eq!(permits.read(body(size), size).await.unwrap().len(), size);
            assert_eq!(permits.read(chunked(4, size), 4 * size).await.unwrap().len(), 4 * size);
        }
        let announced = permits.read(body(SMALL), SMALL - 1).await;
        assert!(matches!(announced, Err(ReadError::TooLarge)));
        let endless = permits.read(chunked(usize::MAX, 1000), 1 << 20).await;
        assert!(matches!(endless, Err(ReadError::TooLarge)));
    }

    #[tokio::test]
    async fn only_few_large_bodies_are_in_memory() {
        let permits = ResponsePermits::default();
        let mut held = Vec::new();
        for _ in 0..LARGE_RESPONSES {
            held.push(permits.read(body(SMALL + 1), usize::MAX).await.unwrap());
        }
        let mut next = pin!(permits.read(chunked(2, SMALL), usize::MAX));
        assert!(next.as_mut().now_or_never().is_none(), "it waits for its permit");
        assert!(
            permits.read(body(SMALL), SMALL).now_or_never().is_some(),
            "a small one does not"
        );
        let shared = held[0].slice(1..);
        drop(held.remove(0));
        assert!(
            next.as_mut().now_or_never().is_none(),
            "a part of the body is still in use"
        );
        drop(shared);
        assert_eq!(next.await.unwrap().len(), 2 * SMALL);
    }
}
