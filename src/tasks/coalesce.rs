//! Write coalescing for a connection: writes of one scheduling round are collected and written together.
//!
//! A connection on which many tasks respond would be woken by the first of them and write its few bytes
//! alone: one TLS record and one system call per response, although more responses are ready a moment later.
//! Here writes go to a buffer. After its poll the connection's task yields once, so that other ready tasks
//! can add their bytes, and then writes everything. An idle server pays for one empty poll, well under a
//! microsecond; no byte waits for a timer.
//!
//! Entry point: [`coalesce`], which returns the stream and the handle that flushes it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sync::Mutex;

/// Buffer size above which bytes are written at once: one TLS record.
const FLUSH_AT: usize = 16 << 10;
/// Larger writes bypass the buffer.
const MAX_BUFFERED_WRITE: usize = 8 << 10;
/// Buffer capacity that an idle connection retains.
const RETAINED_CAPACITY: usize = 4 << 10;

/// A stream whose writes are coalesced. Its owner must call [`FlushHandle::after`] after each poll of the
/// task that writes.
#[derive(Debug)]
pub(crate) struct CoalescingStream<S>(Arc<Mutex<Shared<S>>>);

/// The handle of a [`CoalescingStream`] that marks the end of a poll.
#[derive(Debug)]
pub(crate) struct FlushHandle<S>(Arc<Mutex<Shared<S>>>);

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    buffer: Vec<u8>,
    /// Length of the buffer's prefix that is already written.
    written: usize,
    /// True if `inner` may hold unflushed bytes.
    unflushed: bool,
    /// True if the last write to `inner` was pending.
    blocked: bool,
    /// True if the task has already yielded once for the buffered bytes.
    yielded: bool,
    /// Error of the last deferred write, for the next caller.
    error: Option<io::Error>,
}

/// Coalesces the writes to `inner`.
pub(crate) fn coalesce<S>(inner: S) -> (CoalescingStream<S>, FlushHandle<S>) {
    let shared = Arc::new(Mutex::new(Shared {
        inner,
        buffer: Vec::new(),
        written: 0,
        unflushed: false,
        blocked: false,
        yielded: false,
        error: None,
    }));
    (CoalescingStream(shared.clone()), FlushHandle(shared))
}

// === impl FlushHandle ===

impl<S: AsyncWrite + Unpin> FlushHandle<S> {
    /// Called after a pending poll of the writer. Yields once if there is something to write, and writes at
    /// the next call. `cx` is the task's; `writer` is woken when a blocked stream accepts bytes again.
    fn end(&self, cx: &Context<'_>, writer: &Waker) {
        let mut s = self.0.lock();
        // Flushing counts as well: TLS may hold a record that the socket did not take.
        if !s.has_bytes() && !s.unflushed {
            return;
        }
        // A blocked stream gains nothing from waiting: the socket is full already.
        if !s.yielded && !s.blocked {
            s.yielded = true;
            // Waking a running tokio task queues it behind all tasks that are ready now.
            cx.waker().wake_by_ref();
            return;
        }
        s.yielded = false;
        // The writer's waker: when the socket accepts bytes again, the writing future continues.
        s.deliver(&mut Context::from_waker(writer));
    }

    /// Processes the outcome of a poll: after the last one, writes as much as the socket accepts. `writer` is
    /// the waker of the writing future; it differs from the task's if the task polls its parts with wakers of
    /// their own.
    pub(crate) fn after<T>(&self, polled: Poll<T>, cx: &Context<'_>, writer: &Waker) -> Poll<T> {
        match polled {
            // The future has ended and will not be polled again, so there is nothing to gather any more.
            Poll::Ready(_) => self.0.lock().deliver(&mut Context::from_waker(writer)),
            Poll::Pending => self.end(cx, writer),
        }
        polled
    }

    /// Runs `work`, which writes to the stream, with a call of [`after`](Self::after) after each poll.
    pub(crate) async fn around<F: Future>(self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            self.after(polled, cx, cx.waker())
        })
        .await
    }
}

// === impl Shared ===

impl<S: AsyncWrite + Unpin> Shared<S> {
    fn has_bytes(&self) -> bool {
        self.written < self.buffer.len()
    }

    /// Writes and flushes. An error is stored for the next caller, and the writer is woken to receive it.
    fn deliver(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(error)) = self.poll_delivered(cx) {
            self.error = Some(error);
            // The writer sees the error only when it is polled, and nothing else may wake it.
            cx.waker().wake_by_ref();
        }
    }

    fn poll_delivered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_emptied(cx))?;
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.blocked = flushed.is_pending();
        ready!(flushed)?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Writes the buffer to `inner`.
    fn poll_emptied(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_bytes() {
            let wrote = Pin::new(&mut self.inner).poll_write(cx, &self.buffer[self.written..]);
            self.blocked = wrote.is_pending();
            match ready!(wrote)? {
                // As std's `write_all`: a stream that accepts nothing would loop for ever.
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
            self.unflushed = true;
        }
        self.written = 0;
        // A single large response must not keep its buffer on thousands of idle connections.
        if self.buffer.capacity() > RETAINED_CAPACITY {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
        Poll::Ready(Ok(()))
    }

    /// Makes room for `bytes` in the buffer; false if they should bypass it.
    fn poll_capacity(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<bool>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        // Bypassing requires an empty buffer, or the bytes would overtake the buffered ones.
        if self.buffer.len() - self.written + bytes > FLUSH_AT || bytes > MAX_BUFFERED_WRITE {
            ready!(self.poll_emptied(cx))?;
        }
        Poll::Ready(Ok(bytes <= MAX_BUFFERED_WRITE))
    }

    fn direct(&mut self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.blocked = wrote.is_pending();
        self.unflushed = true;
        wrote
    }
}

// === impl CoalescingStream ===

impl<S: AsyncRead + Unpin> AsyncRead for CoalescingStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescingStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut s = self.0.lock();
        if ready!(s.poll_capacity(cx, buf.len()))? {
            s.buffer.extend_from_slice(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        let wrote = Pin::new(&mut s.inner).poll_write(cx, buf);
        s.direct(wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut s = self.0.lock();
        let bytes = bufs.iter().map(|b| b.len()).sum();
        if ready!(s.poll_capacity(cx, bytes))? {
            for buf in bufs {
                s.buffer.extend_from_slice(buf);
            }
            return Poll::Ready(Ok(bytes));
        }
        let wrote = Pin::new(&mut s.inner).poll_write_vectored(cx, bufs);
        s.direct(wrote)
    }

    // Always: small buffers are copied together in any case.
    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Ready as soon as the bytes are buffered; they are written after the poll. Waits only if the stream is
    /// blocked, so that backpressure reaches the writer.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut s = self.0.lock();
        if let Some(error) = s.error.take() {
            return Poll::Ready(Err(error));
        }
        if s.blocked {
            s.poll_delivered(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut s = self.0.lock();
        if let Some(error) = s.error.take() {
            return Poll::Ready(Err(error));
        }
        // Buffered bytes precede the end of the stream.
        ready!(s.poll_delivered(cx))?;
        Pin::new(&mut s.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
