//! The TLS stream, watched: reads and stalls leave marks for the connection's clock.

use super::activity::Activity;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// A stream that holds its connection's slot for as long as anyone holds the stream: an upgraded connection outlives
/// its HTTP task.
pub(super) struct Watched<S> {
    inner: S,
    activity: Arc<Activity>,
    _slot: OwnedSemaphorePermit,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>, slot: OwnedSemaphorePermit) -> Self {
        Self {
            inner,
            activity,
            _slot: slot,
        }
    }

    fn mark<T>(&self, poll: Poll<T>) -> Poll<T> {
        match &poll {
            Poll::Pending => self.activity.blocked(),
            Poll::Ready(_) => self.activity.unblocked(),
        }
        poll
    }

    fn mark_write(&self, poll: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &poll {
            self.activity.wrote(*bytes);
        }
        self.mark(poll)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.read();
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.mark_write(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.mark_write(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.mark(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
