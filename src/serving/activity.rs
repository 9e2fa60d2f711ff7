//! Activity of a connection: timestamps and counters written by requests and I/O, evaluated by the
//! connection's timer.
//!
//! [`Activity::next_action`] is the decision table of all timeouts. The fields are atomics because
//! eviction, shutdown and upgraded connections use them from other tasks.

use super::limits::Limits;
use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::task::Context;
use tokio::time::{Duration, Instant};

/// Signals to a connection, as bits.
pub(super) mod signals {
    /// Close gracefully: a response has `Connection: close`, or the connection was idle for too long.
    pub(crate) const CLOSE: u8 = 1;
    /// Close gracefully because the server is shutting down.
    pub(crate) const DRAIN: u8 = 2;
    /// Close immediately.
    pub(crate) const KILL: u8 = 4;
}

/// Larger than any HTTP/2 control frame we send, in bytes.
const MORE_THAN_CONTROL: usize = 256;

/// Activity of one connection. Timestamps are milliseconds since its start plus one; zero means unset.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    signals: AtomicU8,
    waker: AtomicWaker,
    reads_heads: AtomicBool,
    in_flight: AtomicUsize,
    /// Whether the connection ever had a request.
    has_served: AtomicBool,
    /// Busy regardless of requests in flight: a handshake that has received bytes, or an upgraded connection.
    busy: AtomicBool,
    /// End of the last request, or the last progress after a stall.
    idle_since: AtomicU64,
    /// HTTP/1: when the first byte of the current request's head arrived.
    head_since: AtomicU64,
    /// Since when writes to the socket have been blocked.
    blocked_since: AtomicU64,
    closing_since: AtomicU64,
    /// Number of response bodies held back by HTTP/2 flow control or a full buffer.
    held: AtomicUsize,
    /// HTTP/1: body bytes not flushed yet, and whether a body waits for the flush.
    unflushed: AtomicUsize,
    awaits_flush: AtomicBool,
    /// When a held body last made progress.
    progressed_at: AtomicU64,
    /// HTTP/2: when the peer last sent anything. Zero for HTTP/1, which has no pings.
    received_at: AtomicU64,
    /// When the unanswered ping was sent.
    ping_sent_at: AtomicU64,
}

/// The next action of the connection's timer.
pub(super) enum TimerAction {
    /// Close immediately, for this reason.
    Cut(&'static str),
    /// Close gracefully.
    Close,
    /// Send a liveness ping.
    Ping,
    /// Check again at this time at the latest.
    At(Instant),
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            signals: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            reads_heads: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            has_served: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            idle_since: AtomicU64::new(1),
            head_since: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
            closing_since: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            unflushed: AtomicUsize::new(0),
            awaits_flush: AtomicBool::new(false),
            progressed_at: AtomicU64::new(0),
            received_at: AtomicU64::new(0),
            ping_sent_at: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn at(&self, mark: u64, after: Duration) -> Instant {
        // `mark` is at least 1: callers check for 0, and `idle_since` begins at 1.
        self.start + Duration::from_millis(mark - 1) + after
    }

    /// Called when the handshake is over. With `reads_heads` (HTTP/1) the deadline of the first head starts
    /// now.
    pub(super) fn begin(&self, reads_heads: bool) {
        let now = self.now();
        self.idle_since.store(now, Relaxed);
        self.busy.store(false, Relaxed);
        if reads_heads {
            self.reads_heads.store(true, Relaxed);
            self.head_since.store(now, Relaxed);
        }
    }

    /// Marks the connection as busy although no request is in flight.
    pub(super) fn mark_busy(&self) {
        self.busy.store(true, Relaxed);
    }

    /// Eviction order: whether the connection is busy, and since when it has been idle or busy. The smallest
    /// value has been idle longest.
    pub(super) fn quiet_since(&self) -> (bool, Instant) {
        let busy = self.in_flight.load(Acquire) > 0 || self.busy.load(Relaxed);
        (busy, self.at(self.idle_since.load(Relaxed), Duration::ZERO))
    }

    pub(super) fn begin_closing(&self) {
        self.closing_since.store(self.now(), Relaxed);
    }

    pub(super) fn signal(&self, signal: u8) {
        // Raised before the wake-up, so that the woken task finds it.
        self.signals.fetch_or(signal, AcqRel);
        self.waker.wake();
    }

    /// The signals raised so far. Registers the task to be woken by later ones.
    pub(super) fn signals(&self, cx: &Context<'_>) -> u8 {
        // Registered before the load: a signal raised in between wakes the task.
        self.waker.register(cx.waker());
        self.signals.load(Acquire)
    }

    /// True if the only reason to close is a shutdown and the connection is so new that its first request is
    /// still awaited.
    pub(super) fn awaits_first_request(&self, raised: u8, limits: &Limits) -> bool {
        raised == signals::DRAIN
            && !self.has_served.load(Relaxed)
            && Instant::now() < self.at(self.idle_since.load(Relaxed), limits.first_request)
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, AcqRel);
        self.has_served.store(true, Relaxed);
        self.head_since.store(0, Relaxed);
        InFlight {
            activity: Arc::clone(self),
            held: false,
        }
    }

    /// Records that bytes arrived.
    pub(super) fn read(&self) {
        // While a request is in flight, bytes belong to its body or to a head that is sent early, whose time
        // begins with the first bytes after the response.
        if self.reads_heads.load(Relaxed) && self.head_since.load(Relaxed) == 0 && self.in_flight.load(Acquire) == 0 {
            self.head_since.store(self.now(), Relaxed);
        }
        // Enabled by the first call of `received`, at the end of the HTTP/2 handshake.
        if self.received_at.load(Relaxed) != 0 {
            self.received();
        }
    }

    /// HTTP/2: records a sign of life from the peer. The first call enables pings, which are then sent after
    /// each `ping_interval` of silence.
    pub(super) fn received(&self) {
        self.ping_sent_at.store(0, Relaxed);
        self.received_at.store(self.now(), Relaxed);
    }

    /// Records that a ping was sent.
    pub(super) fn ping_sent(&self) {
        self.ping_sent_at.store(self.now(), Relaxed);
    }

    /// Records that the socket took bytes. The rest of a response that is written after its request has ended
    /// counts as activity; pings and other small frames do not.
    pub(super) fn wrote(&self, bytes: usize) {
        // A client that reads the end of a long response is not idle, although its request has ended.
        if bytes >= MORE_THAN_CONTROL && self.in_flight.load(Acquire) == 0 {
            self.idle_since.store(self.now(), Relaxed);
        }
    }

    /// True if a body has bytes that the peer does not accept.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Acquire) > 0
    }

    /// Records that the socket accepts no more bytes.
    pub(super) fn blocked(&self) {
        // The stall has lasted since the first write that was not accepted.
        if self.blocked_since.load(Relaxed) == 0 {
            self.blocked_since.store(self.now(), Relaxed);
        }
    }

    /// HTTP/1: records that a body produced bytes, which the transport buffers until it flushes.
    pub(super) fn body_produced(&self, bytes: usize) {
        self.unflushed.fetch_add(bytes, Relaxed);
    }

    /// HTTP/1: true if bytes must be flushed before the body is polled again. The task is then woken by
    /// [`flushed`](Self::flushed).
    pub(super) fn awaits_flush(&self) -> bool {
        let waits = self.unflushed.load(Relaxed) > 0;
        if waits {
            self.awaits_flush.store(true, Relaxed);
        }
        waits
    }

    /// HTTP/1: records that all bytes were handed to the socket. Relaxed ordering suffices because reads and
    /// writes of these two marks happen on the same task.
    pub(super) fn flushed(&self, cx: &Context<'_>) {
        self.unflushed.store(0, Relaxed);
        if self.awaits_flush.swap(false, Relaxed) {
            cx.waker().wake_by_ref();
        }
    }

    /// Records that the socket accepts bytes again.
    pub(super) fn unblocked(&self) {
        if self.blocked_since.load(Relaxed) != 0 {
            self.blocked_since.store(0, Relaxed);
            // The peer has just taken bytes, so it counts as active again.
            self.idle_since.store(self.now(), Relaxed);
        }
    }

    /// The next deadline of the connection, or the action if that deadline has passed.
    ///
    /// ```text
    /// first row that applies      action
    /// peer accepts no bytes       after write_stall: cut (the socket is full, or a body is held back)
    /// a request is in flight      (only the row above)
    /// closing                     after close_grace: cut
    /// draining, no request yet    after first_request: close
    /// a head is being read        after header_read: cut
    /// otherwise                   after idle: close
    ///
    /// additionally, over HTTP/2
    /// ping unanswered             after ping_timeout: cut
    /// nothing received            after ping_interval: ping
    /// ```
    pub(super) fn next_action(&self, limits: &Limits) -> TimerAction {
        let blocked = self.blocked_since.load(Relaxed);
        let idle = self.idle_since.load(Acquire);
        let mut stalled = (blocked != 0).then(|| self.at(blocked, limits.write_stall));
        if stalled.is_none() && self.held.load(Acquire) > 0 {
            stalled = Some(self.at(self.progressed_at.load(Relaxed).max(1), limits.write_stall));
        }
        let (at, action) = if self.in_flight.load(Acquire) > 0 {
            // Nothing is due before the request ends. Its end needs no wake-up: checking again after one idle
            // period is early enough.
            (Instant::now() + limits.idle.min(limits.header_read), TimerAction::Close)
        } else {
            let closing = self.closing_since.load(Relaxed);
            let head = self.head_since.load(Relaxed);
            if closing != 0 {
                let at = self.at(closing.max(idle), limits.close_grace);
                (at, TimerAction::Cut("the peer does not close"))
            } else if self.awaits_first_request(self.signals.load(Acquire), limits) {
                (self.at(idle, limits.first_request), TimerAction::Close)
            } else if head != 0 {
                (
                    self.at(head, limits.header_read),
                    TimerAction::Cut("reading a request's head took too long"),
                )
            } else {
                (self.at(idle, limits.idle), TimerAction::Close)
            }
        };
        let stalled = stalled.map(|at| (at, TimerAction::Cut("the peer does not read")));
        let mut next = (at, action);
        for other in [stalled, self.next_ping(limits)].into_iter().flatten() {
            if other.0 < next.0 {
                next = other;
            }
        }
        fire_if_due(next.0, next.1)
    }

    fn next_ping(&self, limits: &Limits) -> Option<(Instant, TimerAction)> {
        let (received, ping_sent) = (self.received_at.load(Relaxed), self.ping_sent_at.load(Relaxed));
        if ping_sent != 0 {
            return Some((
                self.at(ping_sent, limits.ping_timeout),
                TimerAction::Cut("the peer does not answer pings"),
            ));
        }
        (received != 0).then(|| (self.at(received, limits.ping_interval), TimerAction::Ping))
    }
}

/// Returns `action` if its time has come.
fn fire_if_due(at: Instant, action: TimerAction) -> TimerAction {
    if at <= Instant::now() {
        action
    } else {
        TimerAction::At(at)
    }
}

/// Guard of a request in flight, from its head to the last byte of its response body.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    /// The response body has produced bytes and has not been polled since.
    held: bool,
}

impl InFlight {
    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Records that the response body handed bytes to the transport, which polls again when it can take more.
    pub(super) fn hold(&mut self) {
        self.wait();
        self.activity.progressed_at.store(self.activity.now(), Relaxed);
    }

    /// Records that the client's flow-control window is closed.
    pub(super) fn wait(&mut self) {
        // If another body is held already, the time of the stall is running.
        if !std::mem::replace(&mut self.held, true) && self.activity.held.fetch_add(1, AcqRel) == 0 {
            self.activity.progressed_at.store(self.activity.now(), Relaxed);
        }
    }

    /// Records that the transport polls the body again, or is done with it.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.activity.held.fetch_sub(1, AcqRel);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.release();
        let activity = &self.activity;
        // Before the count: a reader that finds no request in flight must not see the old timestamp.
        activity.idle_since.store(activity.now(), Relaxed);
        let before = activity.in_flight.fetch_sub(1, AcqRel);
        // Only a closing connection waits for the end of a request; see `next_action` for the others.
        if before == 1 && activity.signals.load(Acquire) != 0 {
            activity.waker.wake();
        }
    }
}
