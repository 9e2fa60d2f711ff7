//! Reading more at once than is asked for, where more is there.
//!
//! TLS asks for four kilobytes at a time. On a connection on which many answers arrive together, or a long one, that is ten
//! calls of the kernel for what one can bring. A question that is not answered to the brim has brought all there was; after
//! one that is, the next read goes to a buffer, which is given back when it is empty and no more is known to be there: an
//! idle connection holds none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at once.
const AHEAD: usize = 32 << 10;

/// A stream that is read ahead. Writes go straight through.
#[derive(Debug)]
pub struct ReadAhead<S> {
    inner: S,
    buffer: Box<[u8]>,
    /// What of the buffer was read and not yet asked for.
    at: usize,
    end: usize,
    /// The last read filled what it was given: more may be there.
    brimful: bool,
}

impl<S> ReadAhead<S> {
    /// Over `inner`, of which nothing has been read.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            buffer: Box::default(),
            at: 0,
            end: 0,
            brimful: false,
        }
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let n = buf.remaining().min(self.end - self.at);
        buf.put_slice(&self.buffer[self.at..self.at + n]);
        self.at += n;
        if self.at == self.end && !self.brimful {
            self.buffer = Box::default();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.at < this.end {
            this.give(buf);
            return Poll::Ready(Ok(()));
        }
        if !this.brimful || buf.remaining() >= AHEAD {
            let room = buf.remaining();
            ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
            this.brimful = room > 0 && buf.remaining() == 0;
            return Poll::Ready(Ok(()));
        }
        if this.buffer.is_empty() {
            this.buffer = vec![0; AHEAD].into();
        }
        let mut ahead = ReadBuf::new(&mut this.buffer);
        let polled = Pin::new(&mut this.inner).poll_read(cx, &mut ahead);
        (this.at, this.end) = (0, ahead.filled().len());
        this.brimful = this.end == AHEAD;
        this.give(buf);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::task::Waker;

    /// Gives what it holds, in pieces of at most `most` bytes, and counts how often it was asked.
    struct Source {
        bytes: Vec<u8>,
        at: usize,
        most: usize,
        asked: usize,
    }

    impl AsyncRead for Source {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.asked += 1;
            let n = (self.bytes.len() - self.at).min(self.most).min(buf.remaining());
            if n == 0 {
                return Poll::Pending;
            }
            buf.put_slice(&self.bytes[self.at..self.at + n]);
            self.at += n;
            Poll::Ready(Ok(()))
        }
    }

    fn ahead(len: usize, most: usize) -> ReadAhead<Source> {
        ReadAhead::new(Source {
            bytes: (0..len).map(|i| (i * 31 >> 3) as u8).collect(),
            at: 0,
            most,
            asked: 0,
        })
    }

    /// Reads `room` bytes at a time until there are no more.
    fn drained(stream: &mut ReadAhead<Source>, rooms: &[usize]) -> Vec<u8> {
        let mut all = Vec::new();
        for room in rooms.iter().cycle() {
            let mut bytes = vec![0; *room];
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf) {
                Poll::Ready(read) => read.unwrap(),
                Poll::Pending => return all,
            }
            all.extend_from_slice(buf.filled());
        }
        all
    }

    #[test]
    fn what_comes_in_small_pieces_needs_no_buffer() {
        let mut stream = ahead(10_000, 1000);
        assert_eq!(drained(&mut stream, &[4096]).len(), 10_000);
        assert_eq!(stream.inner.asked, 11);
        assert!(stream.buffer.is_empty());
    }

    #[test]
    fn what_comes_together_is_read_together_and_the_buffer_is_given_back() {
        let mut stream = ahead(30_000, usize::MAX);
        assert_eq!(drained(&mut stream, &[4096]).len(), 30_000);
        assert_eq!(stream.inner.asked, 3, "the brim, the rest, nothing");
        assert!(stream.buffer.is_empty());
    }

    #[test]
    fn a_buffer_in_vain_is_given_back() {
        let mut stream = ahead(4096, usize::MAX);
        assert_eq!(drained(&mut stream, &[4096]).len(), 4096);
        assert!(stream.buffer.is_empty());
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_or_moved(
            len in 0..100_000_usize,
            most in 1..70_000_usize,
            rooms in proptest::collection::vec(1..50_000_usize, 1..6),
        ) {
            let mut stream = ahead(len, most);
            let all = drained(&mut stream, &rooms);
            prop_assert!(all == stream.inner.bytes);
        }
    }
}
