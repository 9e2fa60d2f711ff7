//! HTTP/2: one task per connection drives both the connection and the handlers of its streams.
//!
//! Streams are not tasks: the connection's task polls their futures, each with its own waker ([`wake_list`]).
//! One round of the task ([`Http2::poll`]):
//!
//! ```text
//! 1xx responses ──▶ woken streams ──▶ the connection, if woken by I/O or by stream output:
//!                                     writes frames, reads frames, and calls the handler of each new stream
//! ```
//!
//! A response that is ready immediately passes through no queue, and all responses of a round are written
//! together ([`FlushHandle`]). Wake-ups that arrive during a round are handled in the next one, after other
//! tasks had a chance to run. A round also ends after [`Limits::yield_after`], leaving the remaining streams
//! for the next round, so that a connection with many streams does not monopolise its thread. A single poll
//! of a stream cannot be split, so long computations must not run in a stream's future; they belong in a task
//! of their own.

mod head;
mod request_body;
mod stream;
mod wake_list;

use super::dispatch::Dispatcher;
use crate::request::Body;
use crate::request::informational::H2InformationalQueue;
use crate::serving::activity::Activity;
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
use wake_list::{StreamWaker, WakeList};

/// Maximum number of streams accepted per round.
const MAX_ACCEPTS: usize = 256;
/// Number of stream slots that an idle connection retains.
const RETAINED_SLOTS: usize = 16;

/// The settings announced to clients.
pub(super) fn settings(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .initial_window_size(limits.stream_window)
        // Room for all streams at once, so that an upload which a handler does not read cannot block the
        // others.
        .initial_connection_window_size(limits.stream_window.saturating_mul(limits.streams).min(i32::MAX as u32))
        // The range that RFC 9113 (6.5.2) allows.
        .max_frame_size(limits.stream_window.clamp(1 << 14, (1 << 24) - 1))
        .max_header_list_size(limits.header_bytes);
    builder
}

/// An HTTP/2 connection and its streams.
pub(super) struct Http2<'a, S> {
    dispatcher: &'a Dispatcher,
    phase: Phase<S>,
    /// Close as soon as the handshake is over.
    closing: bool,
    coalescer: FlushHandle<S>,
    wake_list: Arc<WakeList>,
    /// Wakes the connection's own half, as opposed to one of its streams.
    waker: Waker,
    slots: Vec<Slot<'a>>,
    /// Indices of the unused entries of `slots`.
    free: Vec<usize>,
    /// Streams left to poll, and the time budget of one round.
    ready_streams: Vec<usize>,
    yield_after: Duration,
    queue: Arc<H2InformationalQueue>,
    date: Date,
}

enum Phase<S> {
    Handshake(Box<Handshake<CoalescingStream<S>, Bytes>>),
    Open(Box<Connection<CoalescingStream<S>, Bytes>>, Option<PingPong>),
}

/// A slot for a stream. Its waker is reused by later streams in the same slot, which saves an allocation per
/// request.
struct Slot<'a> {
    wake: Arc<StreamWaker>,
    waker: Waker,
    stream: Option<Stream<'a>>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Http2<'a, S> {
    pub(super) fn new(io: S, settings: &Builder, yield_after: Duration, dispatcher: &'a Dispatcher) -> Self {
        let (io, coalescer) = coalesce(io);
        let wake_list = Arc::<WakeList>::default();
        let waker = wake_list.connection();
        // The first round must poll the handshake, although nothing has woken it.
        waker.wake_by_ref();
        let queue = Arc::new(H2InformationalQueue::new(waker.clone()));
        dispatcher.cache.set(queue.clone());
        Self {
            dispatcher,
            phase: Phase::Handshake(Box::new(settings.handshake(io))),
            closing: false,
            coalescer,
            wake_list,
            waker,
            slots: Vec::new(),
            free: Vec::new(),
            ready_streams: Vec::new(),
            yield_after,
            queue,
            date: Date::default(),
        }
    }

    /// Ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let polled = self.poll_round(cx);
        self.coalescer.after(polled, cx, &self.waker)
    }

    /// Begins a graceful shutdown: refuses new streams and ends after the open ones.
    pub(super) fn close(&mut self) {
        self.closing = true;
        if let Phase::Open(connection, _) = &mut self.phase {
            connection.graceful_shutdown();
            self.waker.wake_by_ref();
        }
    }

    /// Sends a liveness ping. The reply needs no handling of its own, because any bytes received count as a
    /// sign of life.
    pub(super) fn ping(&mut self, activity: &Activity) {
        if let Phase::Open(_, Some(pings)) = &mut self.phase {
            // h2 refuses a new ping while an earlier pong has not been collected.
            let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
            if pings.send_ping(Ping::opaque()).is_ok() {
                self.waker.wake_by_ref();
                activity.ping_sent();
                return;
            }
            // No ping could be sent; postpone the next one by a full interval.
        }
        activity.received();
    }

    fn poll_round(&mut self, cx: &Context<'_>) -> Poll<Result<(), h2::Error>> {
        let deadline = Instant::now() + self.yield_after;
        // Taken out, since polling a stream borrows all of `self`.
        let mut ready_streams = std::mem::take(&mut self.ready_streams);
        self.wake_list.begin(&mut ready_streams);
        if self.queue.is_loaded() {
            self.send_informational();
        }
        let mut polled = 0;
        while let Some(slot) = ready_streams.get(polled) {
            self.poll_stream(*slot, deadline);
            polled += 1;
            // Checked after a stream, so that each round makes progress however small the budget.
            if polled < ready_streams.len() && Instant::now() >= deadline {
                break;
            }
        }
        ready_streams.drain(..polled);
        self.ready_streams = ready_streams;
        // Every round polls the connection itself if woken, so busy streams cannot starve frame I/O.
        if self.wake_list.take_connection()
            && let Poll::Ready(end) = self.poll_connection(deadline)
        {
            return Poll::Ready(end);
        }
        // Only when no slot is in use: the wakers refer to slots by index. A late wake-up of a slot that is
        // gone finds none, and that of one created anew costs one poll.
        if self.slots.len() > RETAINED_SLOTS && self.free.len() == self.slots.len() {
            self.slots.truncate(RETAINED_SLOTS);
            self.free.retain(|slot| *slot < RETAINED_SLOTS);
        }
        self.wake_list.end(cx, !self.ready_streams.is_empty());
        Poll::Pending
    }

    /// Writes and reads frames, and starts the handlers of new streams.
    fn poll_connection(&mut self, deadline: Instant) -> Poll<Result<(), h2::Error>> {
        for _ in 0..MAX_ACCEPTS {
            let cx = &mut Context::from_waker(&self.waker);
            match &mut self.phase {
                Phase::Handshake(handshake) => {
                    let mut connection = Box::new(ready!(Pin::new(handshake).poll(cx))?);
                    // `close` was called during the handshake.
                    if self.closing {
                        connection.graceful_shutdown();
                    }
                    let pings = connection.ping_pong();
                    self.phase = Phase::Open(connection, pings);
                    self.dispatcher.activity.received();
                }
                Phase::Open(connection, _) => match ready!(connection.poll_accept(cx)) {
                    Some(accepted) => {
                        let (request, respond) = accepted?;
                        self.accept(request, respond, deadline);
                    }
                    None => return Poll::Ready(Ok(())),
                },
            }
            // Output of the new stream is written by the next `poll_accept`, so its wake-up needs no round of
            // its own.
            self.wake_list.take_connection();
            if Instant::now() >= deadline {
                break;
            }
        }
        // Stopped by the stream limit or the deadline: continue in the next round.
        self.waker.wake_by_ref();
        Poll::Pending
    }

    fn accept(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>, deadline: Instant) {
        let (dispatcher, queue) = (self.dispatcher, &self.queue);
        let in_flight = dispatcher.activity.request();
        let number = respond.stream_id().as_u32();
        let head_alone = request.method() == Method::HEAD;
        let (head, stream) = request.into_parts();
        let body = match head.method {
            // CONNECT tunnels are not supported, so tunnel data is never read.
            Method::CONNECT => Body::empty(),
            _ => request_body::body(stream, &head.headers, queue, number),
        };
        let request = Request::from_parts(head, body);
        // A handler may do work, and panic, before it returns its future.
        match catch_unwind(AssertUnwindSafe(|| dispatcher.dispatch(request, Some(number)))) {
            Ok(handling) => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    let wake = self.wake_list.stream(self.slots.len());
                    self.slots.push(Slot {
                        waker: wake.clone().into(),
                        wake,
                        stream: None,
                    });
                    self.slots.len() - 1
                });
                self.slots[slot].stream = Some(Stream::new(number, head_alone, handling, respond, in_flight));
                // Polled at once: a response that is ready needs no round of its own.
                self.poll_stream(slot, deadline);
            }
            Err(_) => respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    /// Polls the stream in a slot, if any. A panic ends only that stream.
    fn poll_stream(&mut self, number: usize, deadline: Instant) {
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        slot.wake.unlist();
        // A wake-up may arrive after the stream has ended.
        let Some(stream) = &mut slot.stream else {
            return;
        };
        let cx = &mut Context::from_waker(&slot.waker);
        // Sound: after a panic the stream is reset and dropped, so nobody sees its broken state.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            stream.poll(cx, &self.queue, &mut self.date, deadline)
        }));
        if polled.is_err() {
            stream.reset();
        }
        if !matches!(polled, Ok(Poll::Pending)) {
            slot.stream = None;
            self.free.push(number);
        }
    }

    fn send_informational(&mut self) {
        for stream in self.slots.iter_mut().filter_map(|slot| slot.stream.as_mut()) {
            stream.send_informational(&self.queue);
        }
        self.queue.clear();
    }
}
