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

/// A coalesced duplex stream with a task context.
struct Bench {
    stream: CoalescingStream<DuplexStream>,
    flush_handle: FlushHandle<DuplexStream>,
    peer: DuplexStream,
    wakes: Arc<Wakes>,
    waker: Waker,
}

fn bench(capacity: usize) -> Bench {
    let (mine, peer) = tokio::io::duplex(capacity);
    let (stream, flush_handle) = coalesce(mine);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    Bench {
        stream,
        flush_handle,
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
        self.flush_handle.end(&Context::from_waker(&self.waker), &self.waker);
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
fn writes_of_two_polls_are_coalesced() {
    let mut b = bench(1 << 20);
    assert!(b.write(b"one ").is_ready() && b.flush().is_ready());
    b.end();
    assert_eq!((b.arrived().len(), b.wakes()), (0, 1), "other tasks run first");
    assert!(b.write(b"two").is_ready() && b.flush().is_ready());
    b.end();
    assert_eq!((b.arrived().as_slice(), b.wakes()), (&b"one two"[..], 1));
    b.end();
    assert_eq!(b.wakes(), 1, "nothing is left to write");
}

#[test]
fn large_write_flushes_the_buffer_first() {
    let mut b = bench(1 << 20);
    let large = vec![7; MAX_BUFFERED_WRITE + 1];
    assert!(b.write(b"small").is_ready());
    assert!(matches!(b.write(&large), Poll::Ready(Ok(n)) if n == large.len()));
    let arrived = b.arrived();
    assert_eq!((&arrived[..5], arrived.len()), (&b"small"[..], 5 + large.len()));
}

#[test]
fn backpressure_reaches_the_writer() {
    let mut b = bench(16);
    let mut sent = 0;
    while let Poll::Ready(wrote) = b.write(&[7; 1000]) {
        sent += wrote.expect("the stream is whole");
        b.end();
        assert!(sent <= FLUSH_AT + 2000, "the buffer is bounded");
    }
    assert!(b.flush().is_pending());
    let before = b.wakes();
    let mut arrived = 0;
    while arrived < sent {
        let n = b.arrived().len();
        assert!(n > 0 && b.wakes() > before, "the writer is woken for room");
        arrived += n;
        b.end();
    }
    assert_eq!(arrived, sent);
    assert!(b.flush().is_ready());
}

#[test]
fn write_error_is_returned_by_the_next_call() {
    let mut b = bench(1 << 10);
    drop(std::mem::replace(&mut b.peer, tokio::io::duplex(1).0));
    assert!(b.write(b"lost").is_ready());
    b.end();
    b.end();
    assert_eq!(b.wakes(), 2);
    assert!(matches!(b.flush(), Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe));
}

#[tokio::test]
async fn last_bytes_are_written_before_the_end() {
    let (mine, mut peer) = tokio::io::duplex(64);
    let (mut stream, flush_handle) = coalesce(mine);
    flush_handle
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
