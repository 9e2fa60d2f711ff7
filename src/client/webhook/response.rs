//! Reads the bodies of responses: within a limit each, and only few large ones of a webhook at the same time.
//! A caller's objects may need hundreds of reviews, and what their responses hold together would otherwise be
//! a multiple of that.

use bytes::{Buf as _, Bytes};
use http_body::Body;
use http_body_util::BodyExt as _;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A response up to this many bytes needs no turn.
const SMALL: usize = 64 << 10;
/// Most larger responses in memory at the same time.
const LARGE_RESPONSES: usize = 4;

/// The turns of one webhook's large responses.
pub(super) struct ResponseTurns(Arc<Semaphore>);

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum ReadError<E> {
    /// It exceeds the limit.
    TooLarge,
    /// It broke off.
    Broken(E),
}

/// A body with its turn, which ends when the last reference to the bytes is dropped.
struct InTurn {
    bytes: Vec<u8>,
    _turn: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for InTurn {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for ResponseTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_RESPONSES)))
    }
}

impl ResponseTurns {
    /// Reads a body of up to `max` bytes. One that turns out to be large waits for its turn before the rest
    /// is read; the turn ends when the result is dropped.
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
        let mut bytes = Vec::with_capacity(expected.min(SMALL));
        let mut turn = None;
        while let Some(frame) = body.frame().await {
            let Ok(mut data) = frame.map_err(ReadError::Broken)?.into_data() else {
                continue;
            };
            let size = bytes.len() + data.remaining();
            if size > max {
                return Err(ReadError::TooLarge);
            }
            if turn.is_none() && size > SMALL {
                turn = Some(self.turn().await);
                bytes.reserve_exact(expected.max(size) - bytes.len());
            }
            while data.has_remaining() {
                let chunk = data.chunk();
                bytes.extend_from_slice(chunk);
                data.advance(chunk.len());
            }
        }
        Ok(match turn {
            None => bytes.into(),
            Some(turn) => Bytes::from_owner(InTurn { bytes, _turn: turn }),
        })
    }

    async fn turn(&self) -> OwnedSemaphorePermit {
        let turn = self.0.clone().acquire_owned().await;
        turn.expect("the semaphore is never closed")
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
        let turns = ResponseTurns::default();
        for size in [0, 1, SMALL, SMALL + 1] {
            assert_eq!(turns.read(body(size), size).await.unwrap().len(), size);
            assert_eq!(turns.read(chunked(4, size), 4 * size).await.unwrap().len(), 4 * size);
        }
        let announced = turns.read(body(SMALL), SMALL - 1).await;
        assert!(matches!(announced, Err(ReadError::TooLarge)));
        let endless = turns.read(chunked(usize::MAX, 1000), 1 << 20).await;
        assert!(matches!(endless, Err(ReadError::TooLarge)));
    }

    #[tokio::test]
    async fn only_few_large_bodies_are_in_memory() {
        let turns = ResponseTurns::default();
        let mut held = Vec::new();
        for _ in 0..LARGE_RESPONSES {
            held.push(turns.read(body(SMALL + 1), usize::MAX).await.unwrap());
        }
        let mut next = pin!(turns.read(chunked(2, SMALL), usize::MAX));
        assert!(next.as_mut().now_or_never().is_none(), "it waits for its turn");
        assert!(
            turns.read(body(SMALL), SMALL).now_or_never().is_some(),
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
