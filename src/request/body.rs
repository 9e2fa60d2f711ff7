//! [`Body`]: the one type-erased request and response body. It is empty, already in memory, or a stream.

mod computed;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Error of a streaming body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request or response body: empty, in memory, or a stream.
#[derive(Default)]
pub struct Body(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    Full(Bytes),
    Failed(CollectError),
    Stream(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>),
}

/// Why [`Body::collect`] failed.
#[derive(Debug)]
pub enum CollectError {
    /// The body exceeds the limit, in bytes.
    TooLarge(usize),
    /// Reading from the peer failed.
    Read(BoxError),
}

impl Body {
    /// The empty body, of known length zero.
    pub const fn empty() -> Self {
        Self(Inner::Empty)
    }

    /// A body that is already in memory; the transport sees its exact length.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() {
            Self::empty()
        } else {
            Self(Inner::Full(bytes))
        }
    }

    /// A body that could not be received. Reading it yields the error.
    pub const fn failed(error: CollectError) -> Self {
        Self(Inner::Failed(error))
    }

    /// Erases any other body.
    pub fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Inner::Stream(Box::pin(body.map_err(Into::into))))
    }

    /// Converts any body, for requests and responses that have passed through middleware. A `Body` is
    /// returned unchanged.
    pub fn of<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        // Layers often pass the body through; boxing it again would turn a body in memory into a stream, which loses
        // its fast paths (exact length, no copy).
        match (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            Some(same) => same.take().unwrap_or_default(),
            None => body.map_or_else(Self::empty, Self::stream),
        }
    }

    /// The bytes, if the body is in memory.
    pub fn as_full(&self) -> Option<&[u8]> {
        match &self.0 {
            Inner::Empty => Some(&[]),
            Inner::Full(b) => Some(b),
            Inner::Failed(_) | Inner::Stream(_) => None,
        }
    }

    /// The bytes, shared, if the body is in memory.
    pub fn to_full(&self) -> Option<Bytes> {
        match &self.0 {
            Inner::Empty => Some(Bytes::new()),
            Inner::Full(b) => Some(b.clone()),
            Inner::Failed(_) | Inner::Stream(_) => None,
        }
    }

    /// Takes the bytes if the body is in memory, and leaves the body empty. A stream is left untouched.
    pub fn take_full(&mut self) -> Option<Bytes> {
        match std::mem::take(&mut self.0) {
            Inner::Empty => Some(Bytes::new()),
            Inner::Full(b) => Some(b),
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// Reads the whole body, up to `limit` bytes. A body of one frame is returned without a copy.
    ///
    /// # Errors
    /// `CollectError::TooLarge` past the limit, `CollectError::Read` if the peer fails.
    ///
    /// # Cancel safety
    /// Not cancel safe: the bytes read so far are lost.
    pub async fn collect(self, limit: usize) -> Result<Bytes, CollectError> {
        let mut stream = match self.0 {
            Inner::Empty => return Ok(Bytes::new()),
            Inner::Full(b) if b.len() > limit => return Err(CollectError::TooLarge(limit)),
            Inner::Full(b) => return Ok(b),
            Inner::Failed(e) => return Err(e),
            Inner::Stream(s) => s,
        };
        let mut first = Bytes::new();
        let mut rest: Vec<u8> = Vec::new();
        while let Some(frame) = stream.frame().await {
            // Trailers are dropped.
            let Ok(data) = frame.map_err(CollectError::Read)?.into_data() else {
                continue;
            };
            // Checked before copying: a chunked body must not grow beyond the limit by more than a frame.
            if first.len() + rest.len() + data.len() > limit {
                return Err(CollectError::TooLarge(limit));
            }
            if first.is_empty() && rest.is_empty() {
                first = data;
            } else {
                // Start copying only when a second frame arrives.
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                    first = Bytes::new();
                }
                rest.extend_from_slice(&data);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.into() })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Inner::Empty => Poll::Ready(None),
            Inner::Full(b) => {
                let b = std::mem::take(b);
                self.0 = Inner::Empty;
                Poll::Ready(Some(Ok(Frame::data(b))))
            }
            // The error is returned once; afterwards the body is at its end.
            Inner::Failed(_) => match std::mem::take(&mut self.0) {
                Inner::Failed(CollectError::Read(e)) => Poll::Ready(Some(Err(e))),
                _ => Poll::Ready(Some(Err("the body is too large".into()))),
            },
            Inner::Stream(s) => s.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            // A failed body is not at its end: the error is still to be read.
            Inner::Full(_) | Inner::Failed(_) => false,
            Inner::Stream(s) => s.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Full(b) => SizeHint::with_exact(b.len() as u64),
            Inner::Failed(_) => SizeHint::default(),
            Inner::Stream(s) => s.size_hint(),
        }
    }
}

impl From<Bytes> for Body {
    fn from(b: Bytes) -> Self {
        Self::full(b)
    }
}

impl From<Vec<u8>> for Body {
    fn from(b: Vec<u8>) -> Self {
        Self::full(b)
    }
}

impl From<&'static str> for Body {
    fn from(s: &'static str) -> Self {
        Self::full(Bytes::from_static(s.as_bytes()))
    }
}

impl From<String> for Body {
    fn from(s: String) -> Self {
        Self::full(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converting_a_body_that_is_in_memory_leaves_it_there() {
        assert_eq!(Body::of(Body::full("ab")).as_full(), Some(&b"ab"[..]));
        assert!(
            Body::of(http_body_util::Full::new(Bytes::from_static(b"ab")))
                .as_full()
                .is_none()
        );
    }

    #[tokio::test]
    async fn collecting_stops_at_the_limit() {
        let chunks = ["ab", "cd", "ef"].map(|s| Ok::<_, BoxError>(Frame::data(Bytes::from_static(s.as_bytes()))));
        let body = |n: usize| {
            let it = chunks
                .iter()
                .take(n)
                .map(|c| Ok::<_, BoxError>(Frame::data(c.as_ref().unwrap().data_ref().unwrap().clone())))
                .collect::<Vec<_>>();
            Body::stream(http_body_util::StreamBody::new(futures_util::stream::iter(it)))
        };
        assert_eq!(body(2).collect(4).await.unwrap(), "abcd");
        assert!(matches!(body(3).collect(4).await, Err(CollectError::TooLarge(4))));
    }
}
