//! The TLS stream of a connection, instrumented: reads, writes and stalls are recorded in [`Activity`].
//!
//! Over HTTP/1.1 it also writes informational (1xx) responses between hyper's messages.

use crate::request::informational::H1InformationalQueue;
use crate::serving::activity::{Activity, signals};
use crate::serving::bulk::{BulkTurns, Reader, Writer};
use crate::serving::slots::Slot;
use bytes::{Buf, Bytes};
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes per read. hyper doubles its buffer while reads fill it, up to its limit for headers: a megabyte for
/// each connection that uploads, without this bound.
const MAX_READ: usize = 64 << 10;

/// A stream that records activity. It owns the connection's slot, so that an upgraded connection, which
/// outlives its HTTP task, keeps it.
pub(super) struct ConnectionIo<S> {
    inner: S,
    activity: Arc<Activity>,
    // Only over HTTP/1.1, so it also tells the protocols apart.
    informational: Option<InformationalWriter>,
    reader: Reader,
    writer: Writer,
    _slot: Slot,
}

/// Writes informational responses between hyper's messages.
struct InformationalWriter {
    queue: Arc<H1InformationalQueue>,
    /// True if hyper has flushed everything it had, so that the next write begins a message.
    between: bool,
    /// The rest of the bytes being written.
    rest: Bytes,
}

impl<S> ConnectionIo<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>, slot: Slot, bulk: &BulkTurns) -> Self {
        Self {
            inner,
            activity,
            informational: None,
            reader: bulk.reader(),
            writer: bulk.writer(),
            _slot: slot,
        }
    }

    /// Adds a queue of informational responses; HTTP/1.1 only.
    pub(super) fn with_informational_queue(mut self, queue: Arc<H1InformationalQueue>) -> Self {
        self.informational = Some(InformationalWriter {
            queue,
            between: true,
            rest: Bytes::new(),
        });
        self
    }

    fn mark<T>(&self, poll: Poll<T>) -> Poll<T> {
        match &poll {
            Poll::Pending => self.activity.blocked(),
            Poll::Ready(_) => self.activity.unblocked(),
        }
        poll
    }

    fn mark_write(&mut self, poll: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &poll {
            self.activity.wrote(*bytes);
            self.writer.has_written(*bytes);
        }
        self.mark(poll)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if !self.reader.may_read(cx.waker()) {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let poll = match buf.remaining() > MAX_READ {
            true => {
                // Initialises the part of the buffer: `ReadBuf` has no safe way to leave it uninitialised.
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(MAX_READ));
                let poll = Pin::new(&mut self.inner).poll_read(cx, &mut part);
                let read = part.filled().len();
                buf.advance(read);
                poll
            }
            false => Pin::new(&mut self.inner).poll_read(cx, buf),
        };
        let read = buf.filled().len() - before;
        if read > 0 {
            self.activity.read();
        }
        self.reader.has_read(read);
        // Nothing else polls the signals of an upgraded connection, so its eviction is noticed here.
        if poll.is_pending() && self.informational.is_some() && self.activity.signals(cx) & signals::KILL != 0 {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> ConnectionIo<S> {
    /// Writes queued informational responses, if any, unless hyper is in the middle of a message.
    fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(writer) = &mut self.informational else {
            return Poll::Ready(Ok(()));
        };
        if writer.rest.is_empty() {
            if !writer.between || !writer.queue.is_loaded() {
                return Poll::Ready(Ok(()));
            }
            writer.rest = writer.queue.take();
        }
        while !writer.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &writer.rest))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                n => writer.rest.advance(n),
            }
        }
        writer.queue.mark_written();
        Poll::Ready(Ok(()))
    }

    /// Called before hyper writes: informational responses go first.
    fn poll_before_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_informational(cx))?;
        if let Some(writer) = &mut self.informational {
            writer.between = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        // Waiting for a turn is not marked as blocked, because it is not the client that delays the write.
        let Some(allowed) = self.writer.may_write(cx.waker()) else {
            return Poll::Pending;
        };
        let buf = &buf[..buf.len().min(allowed)];
        let poll = match self.poll_before_write(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_write(cx, buf),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => Poll::Pending,
        };
        self.mark_write(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let Some(allowed) = self.writer.may_write(cx.waker()) else {
            return Poll::Pending;
        };
        let mut total = 0;
        let whole = bufs.iter().take_while(|buf| {
            total += buf.len();
            total <= allowed
        });
        let bufs = match whole.count() {
            // The first alone is too long: `poll_write` sends a part of it.
            0 if !bufs.is_empty() => return self.poll_write(cx, &bufs[0]),
            whole => &bufs[..whole],
        };
        let poll = match self.poll_before_write(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => Poll::Pending,
        };
        self.mark_write(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // hyper flushes after it has written everything it has, so a message boundary is reached.
        if let Some(writer) = &mut self.informational {
            writer.between = true;
        }
        let poll = match self.poll_informational(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.inner).poll_flush(cx),
            other => other,
        };
        if matches!(poll, Poll::Ready(Ok(()))) {
            self.writer.has_flushed();
            if self.informational.is_some() {
                self.activity.flushed(cx);
            }
        }
        self.mark(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::limits::Limits;
    use crate::serving::slots::Slots;
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_long_write_is_split_into_turns() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let activity = Activity::new();
        let slots = Slots::new(&Limits::default());
        let slot = slots
            .enter([127, 0, 0, 1].into(), true, &activity)
            .expect("a slot is free");
        let mut io = ConnectionIo::new(near, activity, slot, &BulkTurns::default());
        let long = vec![b'x'; 100 << 10];
        let first = io
            .write(&long)
            .now_or_never()
            .expect("the first write needs no turn")
            .expect("written");
        assert!(first < long.len(), "a long write is not written at once");
        assert!(
            io.write(&long[first..]).now_or_never().is_none(),
            "the rest waits for a turn"
        );
        let slices = [IoSlice::new(&long[..10]), IoSlice::new(&long)];
        assert!(
            io.write_vectored(&slices).now_or_never().is_none(),
            "vectored writes wait as well"
        );
        io.write_all(&long[first..]).await.expect("written in turns");
        let short_first = io.write_vectored(&slices).await.expect("written");
        assert_eq!(short_first, 10, "a slice that does not fit is left for the next write");
        drop(io);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.expect("the stream ends");
        assert_eq!(received.len(), long.len() + 10);
    }
}
