//! HTTP/2: one task per connection drives both the connection and the handlers of its streams.
//!
//! Streams are not tasks: the connection's task polls their futures, each with its own waker ([`wakes`]). One round of
//! the task ([`Http2::poll`]):
//!
//! ```text
//! 1xx responses ──▶ woken streams ──▶ the connection, if woken by I/O or by stream output:
//!                                     writes frames, reads frames, and calls the handler of each new stream
//! ```
//!
//! A response that is ready immediately passes through no queue, and all responses of a round are written together
//! ([`FlushHandle`]). Wake-ups that arrive during a round are handled in the next one, after other tasks had a chance
//! to run. A round also ends after [`Limits::turn`], leaving the remaining streams for the next round, so that a
//! connection with many streams does not monopolise its thread. A single poll of a stream cannot be split, so long
//! computations must not run in a stream's future; they belong in a task of their own.

mod head;
mod received;
mod stream;
mod wakes;

use super::activity::Activity;
use super::answer::Answerer;
use crate::request::Body;
use crate::request::interim::Lanes;
use crate::serving::limits::Limits;
use crate::tasks::coalesce::{CoalescingStream, FlushHandle, coalesce};
use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use head::Date;
use http::{Method, Request};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use wakes::{StreamWake, Wakes};

/// Maximum number of streams accepted per round.
const ACCEPTED: usize = 256;
/// Number of stream slots that an idle connection retains.
const KEPT: usize = 16;

/// The settings announced to clients.
pub(super) fn settings(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .initial_window_size(limits.stream_window)
        .initial_connection_window_size(limits.stream_window.saturating_mul(limits.streams).min(i32::MAX as u32))
        .max_frame_size(limits.stream_window.clamp(1 << 14, (1 << 24) - 1))
        .max_header_list_size(limits.header_bytes);
    builder
}

/// An HTTP/2 connection and its streams.
pub(super) struct Http2<'a, S> {
    answerer: &'a Answerer,
    phase: Phase<S>,
    /// Close as soon as the handshake is over.
    closing: bool,
    turns: FlushHandle<S>,
    wakes: Arc<Wakes>,
    /// Wakes the connection's own half, as opposed to one of its streams.
    waker: Waker,
    places: Vec<Place<'a>>,
    /// Indices of the unused entries of `places`.
    free: Vec<usize>,
    /// Streams left to poll, and the time budget of one round.
    woken: Vec<usize>,
    turn: Duration,
    lanes: Arc<Lanes>,
    date: Date,
}

enum Phase<S> {
    Handshake(Box<Handshake<CoalescingStream<S>, Bytes>>),
    Open(Box<Connection<CoalescingStream<S>, Bytes>>, Option<PingPong>),
}

/// A slot for a stream. Its waker is reused by later streams in the same slot, which saves an allocation per request.
struct Place<'a> {
    wake: Arc<StreamWake>,
    waker: Waker,
    stream: Option<Stream<'a>>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Http2<'a, S> {
    pub(super) fn new(io: S, settings: &Builder, turn: Duration, answerer: &'a Answerer) -> Self {
        let (io, turns) = coalesce(io);
        let wakes = Arc::<Wakes>::default();
        let waker = wakes.connection();
        waker.wake_by_ref();
        let lanes = Arc::new(Lanes::new(waker.clone()));
        answerer.cache.set(lanes.clone());
        Self {
            answerer,
            phase: Phase::Handshake(Box::new(settings.handshake(io))),
            closing: false,
            turns,
            wakes,
            waker,
            places: Vec::new(),
            free: Vec::new(),
            woken: Vec::new(),
            turn,
            lanes,
            date: Date::default(),
        }
    }

    /// Ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let polled = self.poll_turn(cx);
        self.turns.after(polled, cx, &self.waker)
    }

    /// Begins a graceful shutdown: refuses new streams and ends after the open ones.
    pub(super) fn close(&mut self) {
        self.closing = true;
        if let Phase::Open(connection, _) = &mut self.phase {
            connection.graceful_shutdown();
            self.waker.wake_by_ref();
        }
    }

    /// Sends a liveness ping. The reply needs no handling of its own, because any bytes received count as a sign of
    /// life.
    pub(super) fn ping(&mut self, activity: &Activity) {
        if let Phase::Open(_, Some(pings)) = &mut self.phase {
            // h2 refuses a new ping while an earlier pong has not been collected.
            let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
            if pings.send_ping(Ping::opaque()).is_ok() {
                self.waker.wake_by_ref();
                activity.pinged();
                return;
            }
            // No ping could be sent; postpone the next one by a full interval.
        }
        activity.heard();
    }

    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<Result<(), h2::Error>> {
        let deadline = Instant::now() + self.turn;
        let mut woken = std::mem::take(&mut self.woken);
        self.wakes.begin(&mut woken);
        if self.lanes.is_loaded() {
            self.say_early();
        }
        let mut polled = 0;
        while let Some(place) = woken.get(polled) {
            self.poll_stream(*place, deadline);
            polled += 1;
            if polled < woken.len() && Instant::now() >= deadline {
                break;
            }
        }
        woken.drain(..polled);
        self.woken = woken;
        // Every round polls the connection itself if woken, so busy streams cannot starve frame I/O.
        if self.wakes.take_connection()
            && let Poll::Ready(end) = self.poll_connection(deadline)
        {
            return Poll::Ready(end);
        }
        if self.places.len() > KEPT && self.free.len() == self.places.len() {
            self.places.truncate(KEPT);
            self.free.retain(|place| *place < KEPT);
        }
        self.wakes.end(cx, !self.woken.is_empty());
        Poll::Pending
    }

    /// Writes and reads frames, and starts the handlers of new streams.
    fn poll_connection(&mut self, deadline: Instant) -> Poll<Result<(), h2::Error>> {
        for _ in 0..ACCEPTED {
            let cx = &mut Context::from_waker(&self.waker);
            match &mut self.phase {
                Phase::Handshake(handshake) => {
                    let mut connection = Box::new(ready!(Pin::new(handshake).poll(cx))?);
                    if self.closing {
                        connection.graceful_shutdown();
                    }
                    let pings = connection.ping_pong();
                    self.phase = Phase::Open(connection, pings);
                    self.answerer.activity.heard();
                }
                Phase::Open(connection, _) => match ready!(connection.poll_accept(cx)) {
                    Some(accepted) => {
                        let (request, respond) = accepted?;
                        self.accept(request, respond, deadline);
                    }
                    None => return Poll::Ready(Ok(())),
                },
            }
            // Output of the new stream is written by the next `poll_accept`, so its wake-up needs no round of its own.
            self.wakes.take_connection();
            if Instant::now() >= deadline {
                break;
            }
        }
        // Stopped by the stream limit or the deadline: continue in the next round.
        self.waker.wake_by_ref();
        Poll::Pending
    }

    fn accept(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>, deadline: Instant) {
        let (answerer, lanes) = (self.answerer, &self.lanes);
        let in_flight = answerer.activity.request();
        let number = respond.stream_id().as_u32();
        let head_alone = request.method() == Method::HEAD;
        let (head, stream) = request.into_parts();
        let body = match head.method {
            // CONNECT tunnels are not supported, so tunnel data is never read.
            Method::CONNECT => Body::empty(),
            _ => received::body(stream, &head.headers, lanes, number),
        };
        let request = Request::from_parts(head, body);
        // A handler may do work, and panic, before it returns its future.
        match catch_unwind(AssertUnwindSafe(|| answerer.ask(request, Some(number)))) {
            Ok(handling) => {
                let place = self.free.pop().unwrap_or_else(|| {
                    let wake = self.wakes.stream(self.places.len());
                    self.places.push(Place {
                        waker: wake.clone().into(),
                        wake,
                        stream: None,
                    });
                    self.places.len() - 1
                });
                self.places[place].stream = Some(Stream::new(number, head_alone, handling, respond, in_flight));
                self.poll_stream(place, deadline);
            }
            Err(_) => respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    /// Polls the stream in a slot, if any. A panic ends only that stream.
    fn poll_stream(&mut self, number: usize, deadline: Instant) {
        let Some(place) = self.places.get_mut(number) else {
            return;
        };
        place.wake.unlist();
        let Some(stream) = &mut place.stream else {
            return;
        };
        let cx = &mut Context::from_waker(&place.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            stream.poll(cx, &self.lanes, &mut self.date, deadline)
        }));
        if polled.is_err() {
            stream.reset();
        }
        if !matches!(polled, Ok(Poll::Pending)) {
            place.stream = None;
            self.free.push(number);
        }
    }

    fn say_early(&mut self) {
        for stream in self.places.iter_mut().filter_map(|place| place.stream.as_mut()) {
            stream.say_early(&self.lanes);
        }
        self.lanes.clear();
    }
}
