//! The byte stream of a backend connection: TCP or a Unix socket ([`TrackedStream`]), with or without TLS
//! above it ([`Connection`]).
//!
//! It records whether bytes have arrived, since any byte proves that the peer is alive. On a watched
//! connection it also limits how long sent bytes may stay unacknowledged (`TCP_USER_TIMEOUT`): a few seconds
//! for requests, more during a large upload, in which a backend may pause, until the backend responds.
//!
//! ```text
//! idle, or a request being sent ── 48 KiB sent without a response ──► 30 s for unacknowledged bytes
//!   6 s for unacknowledged bytes ◄────────────── a byte arrives ──────────────┘
//! ```

use hyper_util::client::legacy::connect::Connected;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// How long sent bytes may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(6);
/// The same during a large upload.
const UNACKNOWLEDGED_UPLOAD: Duration = Duration::from_secs(30);
/// Bytes from which a request counts as a large upload: more than a request without a body
/// has, less than a receive window.
const LARGE_UPLOAD: usize = 48 << 10;

/// Bytes after which a reader yields once. HTTP/2 connections decode frames as long as there are bytes, and a backend can
/// send five thousand interim responses in 64 KiB: without a pause, 100,000 of them kept a reactor busy for 0.2 s.
const MAX_BURST: usize = 32 << 10;

/// A byte stream that records received bytes.
#[derive(Debug)]
pub(crate) struct TrackedStream {
    bytes: Socket,
    received: ReceiveFlag,
    /// Bytes sent since the last byte arrived; `None` if the connection is not watched.
    unanswered: Option<usize>,
    /// Bytes read since the reader last had to wait.
    burst: usize,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection for HTTP, with or without TLS.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
pub(crate) enum Connection {
    Tls(TlsStream<TrackedStream>),
    Plain(TrackedStream),
}

/// Whether bytes have arrived since the last check. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiveFlag(Arc<AtomicBool>);

impl ReceiveFlag {
    /// Returns whether bytes arrived since the last call, and resets the flag.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: the flag carries no other data.
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl TrackedStream {
    /// A TCP connection that is not watched.
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self {
            bytes: Socket::Tcp(tcp),
            received: ReceiveFlag::default(),
            unanswered: None,
            burst: 0,
        }
    }

    /// A Unix socket, which is never watched: its peer cannot become unreachable.
    pub(crate) fn unix(unix: UnixStream) -> Self {
        Self {
            bytes: Socket::Unix(unix),
            received: ReceiveFlag::default(),
            unanswered: None,
            burst: 0,
        }
    }

    /// A TCP connection whose dead peer is detected within seconds.
    pub(crate) fn watched(tcp: TcpStream) -> Self {
        let mut io = Self::new(tcp);
        io.unanswered = Some(0);
        io.limit_unacknowledged(UNACKNOWLEDGED);
        io
    }

    /// Limits how long sent bytes may stay unacknowledged. On Linux this limit also overrides the number of
    /// TCP keepalive probes on an idle connection.
    fn limit_unacknowledged(&self, time: Duration) {
        #[cfg(target_os = "linux")]
        if let Socket::Tcp(tcp) = &self.bytes
            && let Err(e) = socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(time))
        {
            tracing::debug!("the limit for unacknowledged bytes cannot be set: {e}");
        }
        // Other systems keep their own limit.
        #[cfg(not(target_os = "linux"))]
        let _ = time;
    }

    fn on_write(&mut self, n: &Poll<io::Result<usize>>) {
        if let (Poll::Ready(Ok(n)), Some(before)) = (n, self.unanswered) {
            let now = before.saturating_add(*n);
            self.unanswered = Some(now);
            // Only at the threshold: setting the option is a system call.
            if before < LARGE_UPLOAD && now >= LARGE_UPLOAD {
                self.limit_unacknowledged(UNACKNOWLEDGED_UPLOAD);
            }
        }
    }

    fn read(&mut self) {
        self.received.0.store(true, Ordering::Relaxed);
        // An answer shows that the peer is alive, so the short limit is safe again.
        if let Some(unanswered) = &mut self.unanswered
            && std::mem::take(unanswered) >= LARGE_UPLOAD
        {
            self.limit_unacknowledged(UNACKNOWLEDGED);
        }
    }

    /// The flag that records arriving bytes.
    pub(crate) fn receive_flag(&self) -> ReceiveFlag {
        self.received.clone()
    }
}

impl Connection {
    /// The flag that records arriving bytes.
    pub(crate) fn receive_flag(&self) -> ReceiveFlag {
        match self {
            Self::Tls(tls) => tls.get_ref().0.receive_flag(),
            Self::Plain(io) => io.receive_flag(),
        }
    }
}

/// Dispatches the same call to either variant.
macro_rules! either {
    ($of:expr, $a:pat => $b:pat, $call:expr) => {
        match $of {
            $a => $call,
            $b => $call,
        }
    };
}

/// For hyper-util's client.
impl hyper_util::client::legacy::connect::Connection for TrackedStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.burst >= MAX_BURST {
            self.burst = 0;
            // Polled again at once, but after the other tasks of this reactor.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // The caller may pass a buffer that already holds something.
        let before = buf.filled().len();
        let read = either!(&mut self.bytes, Socket::Tcp(io) => Socket::Unix(io), Pin::new(io).poll_read(cx, buf));
        let new = buf.filled().len() - before;
        // A reader that waits lets the other tasks run.
        self.burst = if read.is_pending() { 0 } else { self.burst + new };
        if new > 0 {
            self.read();
        }
        read
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, Self::Tls(io) => Self::Plain(io), Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let n = either!(&mut self.bytes, Socket::Tcp(io) => Socket::Unix(io), Pin::new(io).poll_write(cx, buf));
        self.on_write(&n);
        n
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n =
            either!(&mut self.bytes, Socket::Tcp(io) => Socket::Unix(io), Pin::new(io).poll_write_vectored(cx, bufs));
        self.on_write(&n);
        n
    }

    fn is_write_vectored(&self) -> bool {
        either!(&self.bytes, Socket::Tcp(io) => Socket::Unix(io), io.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.bytes, Socket::Tcp(io) => Socket::Unix(io), Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.bytes, Socket::Tcp(io) => Socket::Unix(io), Pin::new(io).poll_shutdown(cx))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(&mut *self, Self::Tls(io) => Self::Plain(io), Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(&mut *self, Self::Tls(io) => Self::Plain(io), Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, Self::Tls(io) => Self::Plain(io), io.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, Self::Tls(io) => Self::Plain(io), Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, Self::Tls(io) => Self::Plain(io), Pin::new(io).poll_shutdown(cx))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Wakes the task under test, and counts.
    #[derive(Default)]
    struct Wakes(std::sync::atomic::AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_reader_yields_between_bursts() {
        let (near, mut peer) = UnixStream::pair().unwrap();
        let mut io = TrackedStream::unix(near);
        let sent = vec![0; 2 * MAX_BURST];
        let (written, ()) = tokio::join!(peer.write_all(&sent), async {
            let wakes = Arc::new(Wakes::default());
            let waker = std::task::Waker::from(wakes.clone());
            let mut cx = Context::from_waker(&waker);
            let mut space = [0; 1024];
            let (mut read, mut before) = (0, 0);
            while read < sent.len() {
                let mut buf = ReadBuf::new(&mut space);
                match Pin::new(&mut io).poll_read(&mut cx, &mut buf) {
                    Poll::Ready(done) => done.unwrap(),
                    // Yielded, or nothing has arrived yet.
                    Poll::Pending => {
                        before = read;
                        tokio::task::yield_now().await;
                    }
                }
                read += buf.filled().len();
                assert!(read - before <= MAX_BURST, "{read} bytes without a pause");
            }
            assert!(wakes.0.load(Ordering::Relaxed) >= 1, "it wakes itself");
        });
        written.unwrap();
    }

    #[tokio::test]
    async fn an_upload_extends_the_limit_until_a_byte_arrives() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut io = TrackedStream::watched(tcp);
        let limit = |io: &TrackedStream| match &io.bytes {
            Socket::Tcp(tcp) => socket2::SockRef::from(tcp).tcp_user_timeout().unwrap(),
            Socket::Unix(_) => None,
        };
        assert_eq!(limit(&io), Some(UNACKNOWLEDGED));
        io.write_all(b"GET / HTTP/1.1").await.unwrap();
        assert_eq!(limit(&io), Some(UNACKNOWLEDGED));
        io.write_all(&[0; LARGE_UPLOAD]).await.unwrap();
        assert_eq!(limit(&io), Some(UNACKNOWLEDGED_UPLOAD));
        peer.write_all(b"x").await.unwrap();
        assert_eq!(io.read_u8().await.unwrap(), b'x');
        assert_eq!(limit(&io), Some(UNACKNOWLEDGED));
    }
}
