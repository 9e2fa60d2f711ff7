//! What a connection's task writes, gathered over one turn of the scheduler.
//!
//! A connection that many tasks answer on is woken by the first of them and would write its few bytes alone: a TLS record
//! and a system call per answer, though the next answers are ready a moment later. Here bytes go to a buffer; at the end
//! of its turn the connection goes to the back of the queue once, lets whoever is ready add theirs, and then writes
//! everything. An idle server loses one empty turn, well under a microsecond, and no byte waits for a timer.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TLS record's worth of bytes: more is written at once.
const MOST: usize = 16 << 10;
/// Larger writes are not copied.
const COPIED: usize = 8 << 10;
/// A buffer that has grown beyond this is not kept by an idle connection.
const KEPT: usize = 4 << 10;

/// A stream whose writes are gathered. Somebody must call [`Turns::after`] after each poll of what writes to it.
#[derive(Debug)]
pub struct Gather<S>(Arc<Mutex<Shared<S>>>);

/// The other end of a [`Gather`]: tells it that a turn is over.
#[derive(Debug)]
pub struct Turns<S>(Arc<Mutex<Shared<S>>>);

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    buffer: Vec<u8>,
    /// Bytes at the head of the buffer that are written.
    written: usize,
    /// `inner` may hold bytes.
    unflushed: bool,
    /// `inner` would take no more.
    blocked: bool,
    /// The others have had their turn.
    waited: bool,
    /// Why the last turn's bytes could not be written.
    error: Option<io::Error>,
}

/// Gathers the writes to `inner`.
pub fn gather<S>(inner: S) -> (Gather<S>, Turns<S>) {
    let shared = Arc::new(Mutex::new(Shared {
        inner,
        buffer: Vec::new(),
        written: 0,
        unflushed: false,
        blocked: false,
        waited: false,
        error: None,
    }));
    (Gather(shared.clone()), Turns(shared))
}

fn lock<S>(shared: &Mutex<Shared<S>>) -> MutexGuard<'_, Shared<S>> {
    shared.lock().expect("no code panics while holding this lock")
}

// === impl Turns ===

impl<S: AsyncWrite + Unpin> Turns<S> {
    /// A poll of what writes is over, and it has more to do. The task is woken for what is left to write, the writer
    /// when there is room again.
    fn end(&self, cx: &Context<'_>, writer: &Waker) {
        let mut s = lock(&self.0);
        if !s.has_bytes() && !s.unflushed {
            return;
        }
        if !s.waited && !s.blocked {
            s.waited = true;
            // Woken while it runs, a task goes to the back of the queue.
            cx.waker().wake_by_ref();
            return;
        }
        s.waited = false;
        s.deliver(&mut Context::from_waker(writer));
    }

    /// The same for a poll's outcome: what is over writes what can still be written. `writer` is the waker of what
    /// writes, which is the task's unless the task tells its parts apart.
    pub fn after<T>(&self, polled: Poll<T>, cx: &Context<'_>, writer: &Waker) -> Poll<T> {
        match polled {
            Poll::Ready(_) => lock(&self.0).deliver(&mut Context::from_waker(writer)),
            Poll::Pending => self.end(cx, writer),
        }
        polled
    }

    /// `work`, which writes to the stream, with its turns.
    pub async fn around<F: Future>(self, work: F) -> F::Output {
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

    /// Writes and flushes; an error is kept for the next who asks, and the writer is woken to hear of it.
    fn deliver(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(error)) = self.poll_delivered(cx) {
            self.error = Some(error);
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

    /// Gives the buffer's bytes to `inner`.
    fn poll_emptied(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_bytes() {
            let wrote = Pin::new(&mut self.inner).poll_write(cx, &self.buffer[self.written..]);
            self.blocked = wrote.is_pending();
            match ready!(wrote)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
            self.unflushed = true;
        }
        self.written = 0;
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
        Poll::Ready(Ok(()))
    }

    /// Room for `bytes` in the buffer; false where they are too many to be copied.
    fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<bool>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        if self.buffer.len() - self.written + bytes > MOST || bytes > COPIED {
            ready!(self.poll_emptied(cx))?;
        }
        Poll::Ready(Ok(bytes <= COPIED))
    }

    fn direct(&mut self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.blocked = wrote.is_pending();
        self.unflushed = true;
        wrote
    }
}

// === impl Gather ===

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut s = lock(&self.0);
        if ready!(s.poll_room(cx, buf.len()))? {
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
        let mut s = lock(&self.0);
        let bytes = bufs.iter().map(|b| b.len()).sum();
        if ready!(s.poll_room(cx, bytes))? {
            for buf in bufs {
                s.buffer.extend_from_slice(buf);
            }
            return Poll::Ready(Ok(bytes));
        }
        let wrote = Pin::new(&mut s.inner).poll_write_vectored(cx, bufs);
        s.direct(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Ready as soon as the bytes are gathered: the end of the turn writes them. A stream that takes no more is waited
    /// for, so that a writer feels it.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut s = lock(&self.0);
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
        let mut s = lock(&self.0);
        if let Some(error) = s.error.take() {
            return Poll::Ready(Err(error));
        }
        ready!(s.poll_delivered(cx))?;
        Pin::new(&mut s.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A duplex stream, gathered, with a task's context.
    struct Bench {
        stream: Gather<DuplexStream>,
        turns: Turns<DuplexStream>,
        peer: DuplexStream,
        wakes: Arc<Wakes>,
        waker: Waker,
    }

    fn bench(room: usize) -> Bench {
        let (mine, peer) = tokio::io::duplex(room);
        let (stream, turns) = gather(mine);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        Bench {
            stream,
            turns,
            peer,
            wakes,
            waker,
        }
    }

    impl Bench {
        fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(&mut Context::from_waker(&self.waker), bytes)
        }

        fn flush(&mut self) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(&mut Context::from_waker(&self.waker))
        }

        fn end(&self) {
            self.turns.end(&Context::from_waker(&self.waker), &self.waker);
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }

        fn arrived(&mut self) -> Vec<u8> {
            let mut all = vec![0; 1 << 20];
            let mut buf = ReadBuf::new(&mut all);
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(&mut self.peer).poll_read(&mut cx, &mut buf) {
                Poll::Ready(read) => read.expect("the stream is whole"),
                Poll::Pending => {}
            }
            buf.filled().to_vec()
        }
    }

    #[test]
    fn the_answers_of_two_turns_are_one_write() {
        let mut b = bench(1 << 20);
        assert!(b.write(b"one ").is_ready() && b.flush().is_ready());
        b.end();
        assert_eq!((b.arrived().len(), b.wakes()), (0, 1), "the others come first");
        assert!(b.write(b"two").is_ready() && b.flush().is_ready());
        b.end();
        assert_eq!((b.arrived().as_slice(), b.wakes()), (&b"one two"[..], 1));
        b.end();
        assert_eq!(b.wakes(), 1, "nothing is left to wake for");
    }

    #[test]
    fn a_large_write_follows_what_was_gathered_at_once() {
        let mut b = bench(1 << 20);
        let large = vec![7; COPIED + 1];
        assert!(b.write(b"small").is_ready());
        assert!(matches!(b.write(&large), Poll::Ready(Ok(n)) if n == large.len()));
        let arrived = b.arrived();
        assert_eq!((&arrived[..5], arrived.len()), (&b"small"[..], 5 + large.len()));
    }

    #[test]
    fn a_writer_feels_a_peer_that_takes_nothing() {
        let mut b = bench(16);
        let mut sent = 0;
        while let Poll::Ready(wrote) = b.write(&[7; 1000]) {
            sent += wrote.expect("the stream is whole");
            b.end();
            assert!(sent <= MOST + 2000, "the buffer has an end");
        }
        assert!(b.flush().is_pending());
        let before = b.wakes();
        let mut arrived = 0;
        while arrived < sent {
            let n = b.arrived().len();
            assert!(n > 0 && b.wakes() > before, "room is told");
            arrived += n;
            b.end();
        }
        assert_eq!(arrived, sent);
        assert!(b.flush().is_ready());
    }

    #[test]
    fn a_broken_stream_is_told_to_the_next_who_asks() {
        let mut b = bench(1 << 10);
        drop(std::mem::replace(&mut b.peer, tokio::io::duplex(1).0));
        assert!(b.write(b"lost").is_ready());
        b.end();
        b.end();
        assert_eq!(b.wakes(), 2);
        assert!(matches!(b.flush(), Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe));
    }

    #[tokio::test]
    async fn what_is_written_last_arrives_before_the_end() {
        let (mine, mut peer) = tokio::io::duplex(64);
        let (mut stream, turns) = gather(mine);
        turns
            .around(async move {
                stream.write_all(b"last words").await?;
                stream.shutdown().await
            })
            .await
            .expect("the stream is whole");
        let mut heard = String::new();
        peer.read_to_string(&mut heard).await.expect("text");
        assert_eq!(heard, "last words");
    }
}
