//! HTTP/2 connections to backends, on `h2` directly: hyper's client would add a task and a channel per
//! request.
//!
//! Entry points: [`connect`] for a connection, [`Stream::exchange`] for a request on it. `keepalive` finds out that a
//! connection is dead. Which connection a request uses is decided in `host::pool`; request bodies are sent by
//! `upload`.

mod incoming;
mod keepalive;

pub(super) use incoming::IncomingBody;
pub(super) use keepalive::{Keepalive, KeepaliveState, ticks};

use super::GOAWAY;
use super::connection_limits::ConnectionLimiter;
use super::upload::{self, Upload};
use crate::proxy::headers::clean_response;
use crate::proxy::interim::MAX_INFORMATIONAL;
use crate::proxy::io::Connection;
use crate::proxy::tcp;
use crate::request::{Body, InformationalSender};
use crate::sync::{Mutex, MutexGuard};
use crate::tasks::coalesce::coalesce;
use crate::tasks::{Signal, TaskGroup};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body as _;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Flow-control window of each stream: a slow client makes us buffer at most this much of its response. One client may
/// have thousands of watches that it does not read, and a distant backend still sends some megabytes per second.
const STREAM_WINDOW: u32 = 256 << 10;
/// Large enough for all streams at once, so that responses nobody reads do not block the others on the
/// connection.
const CONNECTION_WINDOW: u32 = 256 << 20;
/// Streams per connection, even if the backend allows more: as many as the connection window has room for.
pub(super) const MAX_STREAMS: usize = (CONNECTION_WINDOW / STREAM_WINDOW) as usize;
/// Limit of a response's head in bytes, decoded; also announced to the backend.
const HEADER_LIST: u32 = 1 << 20;

/// A connection shared by requests.
pub(super) struct Http2 {
    sender: Mutex<SendRequest<Bytes>>,
    streams: AtomicUsize,
    used: AtomicBool,
    last_end: Mutex<Instant>,
    limiter: Arc<ConnectionLimiter>,
    peer: Option<SocketAddr>,
    ping_missed: Signal,
}

/// Guard of one stream on a connection.
pub(super) struct Stream {
    connection: Arc<Http2>,
    reused: bool,
}

/// Why a request got no response.
pub(super) struct StreamError {
    pub(super) error: h2::Error,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<(Box<Request<()>>, Body)>,
    /// The backend did not process it.
    pub(super) refused: bool,
}

/// Starts HTTP/2 on a connection. Until the backend's SETTINGS arrive, it is assumed to allow `expected`
/// streams. The returned future drives the connection.
pub(super) async fn connect(
    io: Connection,
    expected: usize,
    peer: Option<SocketAddr>,
    limiter: Arc<ConnectionLimiter>,
) -> Result<(Http2, Keepalive, impl Future<Output = Result<(), h2::Error>>), h2::Error> {
    let received = io.receive_flag();
    let (io, turns) = coalesce(io);
    let (sender, mut connection) = Builder::new()
        // As Go's client: there would be no request that a pushed response belongs to.
        .enable_push(false)
        .initial_max_send_streams(expected)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_LIST)
        .handshake(io)
        .await?;
    let keepalive = Keepalive::new(connection.ping_pong(), received);
    let http2 = Http2 {
        sender: Mutex::new(sender),
        streams: AtomicUsize::new(0),
        used: AtomicBool::new(false),
        last_end: Mutex::new(Instant::now()),
        limiter,
        peer,
        ping_missed: Signal::new("a silent connection"),
    };
    Ok((http2, keepalive, turns.around(connection)))
}

/// The error in Go's wording where Go has an equivalent one.
pub(super) fn error_text(e: &h2::Error) -> String {
    if let Some(io) = e.get_io() {
        return tcp::system_error("read", io);
    }
    // An orderly end, in the words of Go's client.
    if e.is_go_away() && e.is_remote() && e.reason() == Some(Reason::NO_ERROR) {
        return format!("{GOAWAY}; ErrCode=NO_ERROR");
    }
    e.to_string()
}

// === impl Http2 ===

impl Http2 {
    /// The address of the backend.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Fires when the backend has missed a ping. Responses may still arrive, but no new request uses the
    /// connection.
    pub(super) fn ping_missed(&self) -> &Signal {
        &self.ping_missed
    }

    pub(super) fn streams(&self) -> usize {
        // As in `Stream::drop`.
        self.streams.load(Ordering::SeqCst)
    }

    /// Streams this connection may have; `None` if it accepts no more requests. At least one, even if the
    /// backend allows none at present: the request then waits on this connection, since a further one would
    /// fare no better.
    pub(super) fn most_streams(&self) -> Option<usize> {
        let mut sender = self.sender();
        // Only the state is wanted: requests that wait for a stream are woken by the limiter.
        match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(_)) => None,
            _ => Some(sender.current_max_send_streams().clamp(1, MAX_STREAMS)),
        }
    }

    pub(super) fn stream(self: &Arc<Self>) -> Stream {
        // Relaxed: streams are reserved under the pool's lock, and a stream that ends late is only counted
        // too long.
        self.streams.fetch_add(1, Ordering::Relaxed);
        Stream {
            connection: self.clone(),
            reused: self.used.swap(true, Ordering::Relaxed),
        }
    }

    /// How long there has been no stream; `None` while there is one.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let last = *self.last_end.lock();
        (self.streams() == 0).then(|| now.saturating_duration_since(last))
    }

    fn sender(&self) -> MutexGuard<'_, SendRequest<Bytes>> {
        self.sender.lock()
    }

    /// Opens a stream. If the connection accepts no more, the request is handed back.
    fn open(
        &self,
        request: Request<()>,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), (h2::Error, Option<Box<Request<()>>>)> {
        let mut sender = self.sender();
        match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(e)) => return Err((e, Some(Box::new(request)))),
            // h2 lets one request per handle wait for a free stream; a fresh handle lets this one queue
            // behind it.
            Poll::Pending => {
                let fresh = sender.clone();
                *sender = fresh;
            }
        }
        // h2 does not give back a request that it has taken.
        sender.send_request(request, ends).map_err(|e| (e, None))
    }
}

// === impl Stream ===

impl Stream {
    pub(super) fn is_on(&self, connection: &Arc<Http2>) -> bool {
        Arc::ptr_eq(&self.connection, connection)
    }

    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    /// [`Http2::ping_missed`] of the stream's connection.
    pub(super) fn ping_missed(&self) -> Signal {
        self.connection.ping_missed.clone()
    }

    /// Sends a request and returns the future of the response's head. The part of the body that cannot be
    /// sent at once is uploaded by a task of `tasks`, while the response may already arrive.
    ///
    /// The head is sent on the call, not on the first poll: the returned future then need not carry the
    /// request and is small. Dropping it resets the stream.
    pub(super) fn exchange<'t>(
        &self,
        mut request: Request<()>,
        body: Body,
        tasks: &'t TaskGroup,
        informational: Option<&'t InformationalSender>,
    ) -> impl Future<Output = Result<(Response<IncomingBody>, Option<Upload>), StreamError>> + use<'t> {
        let ends = body.is_end_stream();
        announce_length(&mut request, &body);
        let opened = match self.connection.open(request, ends) {
            Ok((response, sending)) => {
                let uploading = (!ends).then(|| Box::pin(upload::start(body, sending, tasks)));
                Ok((response, uploading))
            }
            Err((error, unsent)) => Err(StreamError {
                // h2 checks the connection before it queues a request, so on a dead one nothing was sent.
                refused: error.is_io() || error.is_go_away(),
                unsent: unsent.map(|r| (r, body)),
                error,
            }),
        };
        Self::answered(opened, informational)
    }

    async fn answered(
        opened: Result<(ResponseFuture, Option<impl Future<Output = Option<Upload>> + Unpin>), StreamError>,
        informational: Option<&InformationalSender>,
    ) -> Result<(Response<IncomingBody>, Option<Upload>), StreamError> {
        let (mut response, uploading) = opened?;
        let upload = match uploading {
            // Ready on its first poll: what does not fit in the window goes to a task.
            Some(uploading) => uploading.await,
            None => None,
        };
        // Moved into the closure: borrowed, the counter would enlarge the future of every request to a backend.
        let mut interim = 0;
        let pending = &mut response;
        let head = poll_fn(move |cx| {
            // Before the final head: once that is ready, h2 yields no more informational ones. Also without a
            // client that wants them, since h2 keeps all that have not been read.
            while let Poll::Ready(Some(Ok(mut early))) = pending.poll_informational(cx) {
                interim += 1;
                if interim > MAX_INFORMATIONAL {
                    // Dropping the response resets the stream.
                    return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                }
                if let Some(informational) = informational {
                    clean_response(early.headers_mut());
                    informational.send(early.status(), early.headers());
                }
            }
            Pin::new(&mut *pending).poll(cx)
        });
        match head.await {
            Ok(response) => {
                let length = content_length(response.headers());
                Ok((response.map(|stream| IncomingBody::new(stream, length)), upload))
            }
            Err(error) => Err(StreamError {
                // GOAWAY from the peer ends only streams above its last processed one, so this request was
                // not processed.
                refused: error.reason() == Some(Reason::REFUSED_STREAM) || (error.is_go_away() && error.is_remote()),
                unsent: None,
                error,
            }),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // `SeqCst`, as `ConnectionLimiter` explains: a request that begins to wait now sees the free stream, or
        // `free` sees the request.
        if self.connection.streams.fetch_sub(1, Ordering::SeqCst) == 1 {
            *self.connection.last_end.lock() = Instant::now();
        }
        // A request may wait for a stream of this connection.
        self.connection.limiter.free();
    }
}

/// Sets `Content-Length` as Go's client does: a known length, but no zero for methods that usually have no
/// body.
fn announce_length(request: &mut Request<()>, body: &Body) {
    let bare = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT
    );
    if let Some(length) = body.size_hint().exact()
        // Go's transport announces no empty body for these methods either.
        && (length != 0 || !bare)
    {
        request
            .headers_mut()
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| length.into());
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::io::TrackedStream;
    use http_body_util::BodyExt;
    use http_body_util::StreamBody;
    use tokio::net::UnixStream;

    /// Sends a GET over this connection.
    async fn get(connection: UnixStream) -> Result<Response<IncomingBody>, StreamError> {
        let connection = Connection::Plain(TrackedStream::unix(connection));
        let (http2, _, driving) = connect(connection, 1, None, Arc::default()).await.unwrap();
        tokio::spawn(driving);
        let stream = Arc::new(http2).stream();
        let request = Request::get("https://backend/").body(()).unwrap();
        let tasks = TaskGroup::new("test");
        let sent = stream.exchange(request, Body::empty(), &tasks, None).await;
        sent.map(|(response, _)| response)
    }

    /// The body received when a backend announces five bytes and sends these pieces.
    async fn response(pieces: &'static [&'static str], trailers: bool) -> IncomingBody {
        let (here, there) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let mut backend = h2::server::handshake(there).await.unwrap();
            let (_, mut respond) = backend.accept().await.unwrap().unwrap();
            let head = Response::builder().header(header::CONTENT_LENGTH, 5);
            let mut sending = respond.send_response(head.body(()).unwrap(), false).unwrap();
            for (i, piece) in pieces.iter().enumerate() {
                let last = i + 1 == pieces.len() && !trailers;
                sending.send_data(Bytes::from_static(piece.as_bytes()), last).unwrap();
            }
            if trailers {
                sending.send_trailers(HeaderMap::new()).unwrap();
            }
            poll_fn(|cx| backend.poll_closed(cx)).await
        });
        get(here).await.map_err(|e| e.error).unwrap().into_body()
    }

    #[tokio::test]
    async fn informational_responses_are_limited() {
        for (count, fails) in [(MAX_INFORMATIONAL, false), (MAX_INFORMATIONAL + 1, true)] {
            let (here, there) = UnixStream::pair().unwrap();
            tokio::spawn(async move {
                let mut backend = h2::server::handshake(there).await.unwrap();
                let (_, mut respond) = backend.accept().await.unwrap().unwrap();
                for _ in 0..count {
                    let early = Response::builder().status(103).body(()).unwrap();
                    respond.send_informational(early).unwrap();
                }
                let mut sending = respond.send_response(Response::new(()), false).unwrap();
                sending.send_data(Bytes::from_static(b"hello"), true).unwrap();
                poll_fn(|cx| backend.poll_closed(cx)).await
            });
            let reason = get(here).await.err().map(|e| e.error.reason());
            assert_eq!(reason, fails.then_some(Some(Reason::ENHANCE_YOUR_CALM)), "{count}");
        }
    }

    #[tokio::test]
    async fn a_connection_allows_between_one_and_max_streams() {
        for (allowed, most) in [(0, 1), (1, 1), (7, 7), (100_000, MAX_STREAMS)] {
            let (here, there) = UnixStream::pair().unwrap();
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                let handshake = builder.max_concurrent_streams(allowed).handshake::<_, Bytes>(there);
                let mut backend = handshake.await.unwrap();
                poll_fn(|cx| backend.poll_closed(cx)).await
            });
            let connection = Connection::Plain(TrackedStream::unix(here));
            let (http2, _, driving) = connect(connection, 3, None, Arc::default()).await.unwrap();
            tokio::spawn(driving);
            // Until the backend's SETTINGS have arrived.
            while http2.sender().current_max_send_streams() != allowed as usize {
                tokio::task::yield_now().await;
            }
            assert_eq!(http2.most_streams(), Some(most));
        }
    }

    #[tokio::test]
    async fn a_backend_may_send_little_of_a_response_that_is_not_read() {
        const MUCH: usize = 16 << 20;
        const WINDOW_OF_A_NEW_CONNECTION: usize = 65_535;
        let (here, there) = UnixStream::pair().unwrap();
        let backend = tokio::spawn(async move {
            let mut builder = h2::server::Builder::new();
            let handshake = builder.max_send_buffer_size(MUCH).handshake::<_, Bytes>(there);
            let mut backend = handshake.await.unwrap();
            let (_, mut respond) = backend.accept().await.unwrap().unwrap();
            let mut sending = respond.send_response(Response::new(()), false).unwrap();
            sending.reserve_capacity(MUCH);
            loop {
                let capacity = poll_fn(|cx| {
                    // Also drives the connection.
                    let _ = backend.poll_closed(cx);
                    sending.poll_capacity(cx)
                });
                let capacity = capacity.await.unwrap().unwrap();
                if capacity > WINDOW_OF_A_NEW_CONNECTION {
                    return capacity;
                }
            }
        });
        // The backend ends as soon as it knows how much it may send, before the response is complete.
        let (_unread, capacity) = tokio::join!(get(here), backend);
        let capacity = capacity.unwrap();
        assert!(capacity <= 512 << 10, "{capacity} bytes");
    }

    #[tokio::test]
    async fn a_response_in_one_chunk_is_taken_at_once() {
        let mut whole = response(&["hello"], false).await;
        assert_eq!(whole.take_whole().as_deref(), Some(&b"hello"[..]));
        assert!(whole.is_end_stream());
        // In two chunks, or with trailers, it is not whole.
        for (pieces, trailers) in [(&["he", "llo"][..], false), (&["hello"][..], true)] {
            let mut some = response(pieces, trailers).await;
            assert_eq!(some.take_whole(), None);
            assert!(!some.is_end_stream() && some.size_hint().exact() == Some(5));
            let frames = futures_util::stream::poll_fn(move |cx| some.poll_frame(cx));
            let all = StreamBody::new(frames).collect().await.unwrap();
            assert_eq!(
                (all.trailers().is_some(), all.to_bytes()),
                (trailers, Bytes::from_static(b"hello"))
            );
        }
    }
}
