//! Small writes of one HTTP/2 connection, put together.
//!
//! h2 hands every DATA frame of more than a few hundred bytes to the transport by itself and flushes it: a TLS record and a
//! system call each. A burst of watch events is many such frames. So what h2 writes and "flushes" is collected here while
//! the connection's task runs; the task flushes for true before it waits ([`Gathering::poll_flush`]). Where other streams
//! of the connection are about to write, too, it lets them go first.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A write of this size gains nothing by being copied.
const DIRECT: usize = 8 * 1024;
/// Bytes that are collected at most: two TLS records.
const FULL: usize = 32 * 1024;

/// The transport's side. Clones of its [`Gathering`] flush it.
pub(super) struct Gather<S>(Gathering<S>);

/// Flushes what was gathered.
pub(super) struct Gathering<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    gathered: Vec<u8>,
    /// How much of it was written.
    written: usize,
}

impl<S> Gather<S> {
    pub(super) fn new(stream: S) -> (Self, Gathering<S>) {
        let inner = Inner {
            stream,
            gathered: Vec::new(),
            written: 0,
        };
        let gathering = Gathering(Arc::new(Mutex::new(inner)));
        (Self(Gathering(gathering.0.clone())), gathering)
    }
}

impl<S> Gathering<S> {
    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        // One task has both sides: nobody waits, and a panic of it ends both.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting()
    }
}

impl<S: AsyncWrite + Unpin> Gathering<S> {
    /// Writes what waits, and flushes the stream.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut inner = self.lock();
        ready!(inner.poll_drain(cx))?;
        Pin::new(&mut inner.stream).poll_flush(cx)
    }
}

impl<S> Inner<S> {
    fn waiting(&self) -> usize {
        self.gathered.len() - self.written
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Hands what waits to the stream.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.written < self.gathered.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.gathered[self.written..]))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
        }
        self.written = 0;
        // An idle connection keeps nothing.
        self.gathered = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Makes room for so many bytes; true: they are to be appended.
    fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<Result<bool>> {
        let direct = bytes >= DIRECT;
        if direct || self.waiting() + bytes > FULL {
            ready!(self.poll_drain(cx))?;
        }
        Poll::Ready(Ok(!direct))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let mut inner = self.0.lock();
        if ready!(inner.poll_room(cx, buf.len()))? {
            inner.gathered.extend_from_slice(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut inner.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let mut inner = self.0.lock();
        let bytes = bufs.iter().map(|b| b.len()).sum();
        if ready!(inner.poll_room(cx, bytes))? {
            inner.gathered.reserve(bytes);
            bufs.iter().for_each(|b| inner.gathered.extend_from_slice(b));
            return Poll::Ready(Ok(bytes));
        }
        Pin::new(&mut inner.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().stream.is_write_vectored()
    }

    /// Nothing is in a hurry: the connection's task flushes before it waits.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_drain(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn flush<S: AsyncWrite + Unpin>(g: &Gathering<S>) -> Poll<Result<()>> {
        g.poll_flush(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn small_writes_go_out_together_and_in_order() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut gather, gathering) = Gather::new(near);
        for i in 0..10u8 {
            gather.write_all(&[i; 100]).await.unwrap();
            gather.flush().await.unwrap();
        }
        assert_eq!(gathering.waiting(), 1000);
        // A large one goes by itself, behind what was there.
        gather.write_all(&[10; DIRECT]).await.unwrap();
        assert_eq!(gathering.waiting(), 0);
        gather.write_all(&[11; 5]).await.unwrap();
        assert!(flush(&gathering).is_ready());
        drop((gather, gathering));
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        let mut want: Vec<u8> = (0..10).flat_map(|i| [i; 100]).collect();
        want.extend([10; DIRECT]);
        want.extend([11; 5]);
        assert!(all == want);
    }

    #[tokio::test]
    async fn no_more_is_taken_than_there_is_room_for() {
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut gather, gathering) = Gather::new(near);
        let mut taken = 0;
        while let Ok(n) = tokio::time::timeout(std::time::Duration::ZERO, gather.write(&[1; 4000])).await {
            taken += n.unwrap();
        }
        assert!(taken <= FULL + 4000, "{taken} bytes");
        assert!(flush(&gathering).is_pending(), "the other side reads nothing");
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            all.len()
        });
        gather.shutdown().await.unwrap();
        assert_eq!(reading.await.unwrap(), taken, "shutting down writes what waits");
    }
}
