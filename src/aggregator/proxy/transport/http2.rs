//! HTTP/2 towards backends: streams straight on the connection, without a task or a channel per request.

use super::super::dial;
use super::GOAWAY;
use super::room::Room;
use super::upload::{self, Upload};
use crate::client::headers::clean_response;
use crate::client::io::{Heard, Wire};
use crate::request::{Body, Interim};
use crate::tasks::gather::gather;
use crate::tasks::{Signal, TaskGroup};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::Instant;

const STREAM_WINDOW: u32 = 1 << 20;
/// Room for all streams of a connection: answers that nobody fetches must not stop those beside them.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Most streams of a connection, whatever its backend allows.
pub(super) const MOST_STREAMS: usize = (CONNECTION_WINDOW / STREAM_WINDOW) as usize;
const HEADER_LIST: u32 = 1 << 20;

/// A connection that requests share.
pub(super) struct Http2 {
    sender: Mutex<SendRequest<Bytes>>,
    streams: AtomicUsize,
    used: AtomicBool,
    last_end: Mutex<Instant>,
    room: Arc<Room>,
    peer: Option<SocketAddr>,
    silence: Signal,
}

/// One stream's place on a connection.
pub(super) struct Stream {
    connection: Arc<Http2>,
    reused: bool,
}

/// Asks the backend now and then whether it is still there.
pub(super) struct Heartbeat {
    pings: Option<PingPong>,
    heard: Heard,
    /// Beats since anything came.
    silent: u32,
    awaiting: bool,
}

/// What a beat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulse {
    /// The backend is there, as far as one knows.
    Sound,
    /// It owes an answer: nothing new is to be sent to it.
    Missed,
    /// It has owed one for too long.
    Gone,
}

/// Beats (of a second) without a byte before the backend is asked, before nothing new is sent, and before the end.
const ASK: u32 = 2;
const MISSED: u32 = ASK + 2;
const GONE: u32 = ASK + 5;

/// Why there is no answer.
pub(super) struct Failed {
    pub(super) error: h2::Error,
    /// The request, where nothing of it was sent.
    pub(super) unsent: Option<(Box<Request<()>>, Body)>,
    /// The backend never looked at it.
    pub(super) refused: bool,
}

/// The bytes of an answer, as they arrive.
pub(super) struct Received {
    stream: RecvStream,
    /// Bytes to come, where that is known.
    left: Option<u64>,
    /// The first bytes, where they were looked at.
    first: Option<Bytes>,
    data_ended: bool,
}

/// Starts HTTP/2 on a connection whose backend is taken to allow `expected` streams until it says otherwise. The future
/// drives the connection.
pub(super) async fn connect(
    io: Wire,
    expected: usize,
    peer: Option<SocketAddr>,
    room: Arc<Room>,
) -> Result<(Http2, Heartbeat, impl Future<Output = Result<(), h2::Error>>), h2::Error> {
    let heard = io.heard();
    let (io, turns) = gather(io);
    let (sender, mut connection) = Builder::new()
        .enable_push(false)
        .initial_max_send_streams(expected)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_LIST)
        .handshake(io)
        .await?;
    let heartbeat = Heartbeat {
        pings: connection.ping_pong(),
        heard,
        silent: 0,
        awaiting: false,
    };
    let http2 = Http2 {
        sender: Mutex::new(sender),
        streams: AtomicUsize::new(0),
        used: AtomicBool::new(false),
        last_end: Mutex::new(Instant::now()),
        room,
        peer,
        silence: Signal::new("a silent connection"),
    };
    Ok((http2, heartbeat, turns.around(connection)))
}

/// A failure in Go's words, as far as they are the same thing.
pub(super) fn error_text(e: &h2::Error) -> String {
    if let Some(io) = e.get_io() {
        return dial::system_error("read", io);
    }
    if e.is_go_away() && e.is_remote() && e.reason() == Some(Reason::NO_ERROR) {
        return format!("{GOAWAY}; ErrCode=NO_ERROR");
    }
    e.to_string()
}

// === impl Http2 ===

impl Http2 {
    /// The address it leads to.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Fires when the backend owes an answer to a ping. It may come yet; no new request is sent here any more.
    pub(super) fn silence(&self) -> &Signal {
        &self.silence
    }

    /// Streams in use.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Streams that it may have; none where no request can be sent any more. One also while the backend allows none: it waits
    /// until that is over, and further connections would not be better off.
    pub(super) fn most_streams(&self) -> Option<usize> {
        let mut sender = self.sender();
        match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(_)) => None,
            _ => Some(sender.current_max_send_streams().clamp(1, MOST_STREAMS)),
        }
    }

    /// A place for one more stream.
    pub(super) fn stream(self: &Arc<Self>) -> Stream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Stream {
            connection: self.clone(),
            reused: self.used.swap(true, Ordering::Relaxed),
        }
    }

    /// Without a stream for that long.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let last = *self.last_end.lock().expect("no code panics while holding this lock");
        (self.streams() == 0).then(|| now.saturating_duration_since(last))
    }

    fn sender(&self) -> MutexGuard<'_, SendRequest<Bytes>> {
        self.sender.lock().expect("no code panics while holding this lock")
    }

    /// Opens a stream, or gives the request back where the connection takes no more.
    fn open(
        &self,
        request: Request<()>,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), (h2::Error, Option<Box<Request<()>>>)> {
        let mut sender = self.sender();
        match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(e)) => return Err((e, Some(Box::new(request)))),
            // The last stream waits until the backend allows it; a fresh handle lets this one queue behind it.
            Poll::Pending => {
                let fresh = sender.clone();
                *sender = fresh;
            }
        }
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

    /// [`Http2::silence`] of its connection.
    pub(super) fn silence(&self) -> Signal {
        self.connection.silence.clone()
    }

    /// Sends a request and waits for the head of its answer. What of the body cannot be sent at once goes up in a task
    /// of `tasks`, while the answer comes down. When dropped, the stream is reset.
    ///
    /// It is sent when this is called: what waits is the answer's future, which is small.
    pub(super) fn exchange<'t>(
        &self,
        mut request: Request<()>,
        body: Body,
        tasks: &'t TaskGroup,
        interim: Option<&'t Interim>,
    ) -> impl Future<Output = Result<(Response<Received>, Option<Upload>), Failed>> + use<'t> {
        let ends = body.is_end_stream();
        announce_length(&mut request, &body);
        let opened = match self.connection.open(request, ends) {
            Ok((answer, sending)) => {
                let uploading = (!ends).then(|| Box::pin(upload::start(body, sending, tasks)));
                Ok((answer, uploading))
            }
            Err((error, unsent)) => Err(Failed {
                refused: error.is_io() || error.is_go_away(),
                unsent: unsent.map(|r| (r, body)),
                error,
            }),
        };
        Self::answered(opened, interim)
    }

    async fn answered(
        opened: Result<(ResponseFuture, Option<impl Future<Output = Option<Upload>> + Unpin>), Failed>,
        interim: Option<&Interim>,
    ) -> Result<(Response<Received>, Option<Upload>), Failed> {
        let (mut answer, uploading) = opened?;
        let upload = match uploading {
            Some(uploading) => uploading.await,
            None => None,
        };
        let head = poll_fn(|cx| {
            if let Some(interim) = interim {
                while let Poll::Ready(Some(Ok(mut early))) = answer.poll_informational(cx) {
                    clean_response(early.headers_mut());
                    interim.send(early.status(), early.headers());
                }
            }
            Pin::new(&mut answer).poll(cx)
        });
        match head.await {
            Ok(answer) => {
                let length = content_length(answer.headers());
                Ok((answer.map(|stream| Received::new(stream, length)), upload))
            }
            Err(error) => Err(Failed {
                // The peer's GOAWAY only ends streams behind the last one that it looks at.
                refused: error.reason() == Some(Reason::REFUSED_STREAM) || (error.is_go_away() && error.is_remote()),
                unsent: None,
                error,
            }),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.connection.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self
                .connection
                .last_end
                .lock()
                .expect("no code panics while holding this lock") = Instant::now();
        }
        self.connection.room.free();
    }
}

fn announce_length(request: &mut Request<()>, body: &Body) {
    let bare = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT
    );
    if let Some(length) = body.size_hint().exact()
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

// === impl Heartbeat ===

impl Heartbeat {
    /// To be called every second. Any byte counts as a sign of life, so that a pong behind a long answer on a slow line
    /// is not taken for a missing one.
    pub(super) fn beat(&mut self) -> Pulse {
        let Some(pings) = &mut self.pings else {
            return Pulse::Sound;
        };
        if self.awaiting && pings.poll_pong(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.awaiting = false;
        }
        if self.heard.take() {
            self.silent = 0;
            return Pulse::Sound;
        }
        self.silent += 1;
        if self.silent >= ASK && !self.awaiting {
            self.awaiting = pings.send_ping(Ping::opaque()).is_ok();
        }
        match self.silent {
            GONE.. => Pulse::Gone,
            MISSED.. => Pulse::Missed,
            _ => Pulse::Sound,
        }
    }
}

// === impl Received ===

impl Received {
    fn new(stream: RecvStream, length: Option<u64>) -> Self {
        let left = length.or_else(|| stream.is_end_stream().then_some(0));
        Self {
            stream,
            left,
            first: None,
            data_ended: false,
        }
    }

    /// The bytes, where all that were announced are there, in one piece, and nothing follows them.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        let announced = self.left?;
        let mut idle = Context::from_waker(Waker::noop());
        // An error is told again to who asks next.
        let Poll::Ready(Some(Ok(data))) = self.stream.poll_data(&mut idle) else {
            return None;
        };
        if data.len() as u64 == announced && self.stream.is_end_stream() {
            self.release(data.len());
            return Some(data);
        }
        self.first = Some(data);
        None
    }

    /// Room for as many bytes more.
    fn release(&mut self, bytes: usize) {
        if let Err(e) = self.stream.flow_control().release_capacity(bytes) {
            tracing::debug!("a backend's stream ended with data unread: {e}");
        }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            let data = match self.first.take() {
                Some(first) => Some(Ok(first)),
                None => ready!(self.stream.poll_data(cx)),
            };
            match data {
                Some(Ok(data)) => {
                    self.release(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(e)) => return Poll::Ready(early_end(e)),
                None => self.data_ended = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|t| Ok(Frame::trailers(t))),
            Err(e) => early_end(e),
        })
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.stream.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// A reset without an error says that the answer is whole though the request was not read to its end (RFC 9113, 8.1).
fn early_end(e: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    (e.reason() != Some(Reason::NO_ERROR)).then_some(Err(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::io::Io;
    use http_body_util::BodyExt;
    use http_body_util::StreamBody;
    use tokio::net::UnixStream;

    /// What arrives of an answer that announces five bytes and sends these pieces, with its head.
    async fn answer(pieces: &'static [&'static str], trailers: bool) -> Received {
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
        let wire = Wire::Plain(Io::unix(here));
        let (http2, _, driving) = connect(wire, 1, None, Arc::default()).await.unwrap();
        tokio::spawn(driving);
        let stream = Arc::new(http2).stream();
        let request = Request::get("https://backend/").body(()).unwrap();
        let sent = stream
            .exchange(request, Body::empty(), &TaskGroup::new("test"), None)
            .await;
        let (answer, _) = sent.map_err(|e| e.error).unwrap();
        answer.into_body()
    }

    #[tokio::test]
    async fn a_connection_has_streams_for_one_request_at_least_and_for_those_at_most_whose_answers_it_can_hold() {
        for (allowed, most) in [(0, 1), (1, 1), (7, 7), (100_000, MOST_STREAMS)] {
            let (here, there) = UnixStream::pair().unwrap();
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                let handshake = builder.max_concurrent_streams(allowed).handshake::<_, Bytes>(there);
                let mut backend = handshake.await.unwrap();
                poll_fn(|cx| backend.poll_closed(cx)).await
            });
            let wire = Wire::Plain(Io::unix(here));
            let (http2, _, driving) = connect(wire, 3, None, Arc::default()).await.unwrap();
            tokio::spawn(driving);
            while http2.sender().current_max_send_streams() != allowed as usize {
                tokio::task::yield_now().await;
            }
            assert_eq!(http2.most_streams(), Some(most));
        }
    }

    #[tokio::test]
    async fn a_small_answer_is_had_whole_and_any_other_in_pieces() {
        let mut whole = answer(&["hello"], false).await;
        assert_eq!(whole.take_whole().as_deref(), Some(&b"hello"[..]));
        assert!(whole.is_end_stream());
        for (pieces, trailers) in [(&["he", "llo"][..], false), (&["hello"][..], true)] {
            let mut some = answer(pieces, trailers).await;
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
