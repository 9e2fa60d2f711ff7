//! What a connection is doing: marks left by requests and I/O, read by the connection's own clock.

use crate::serving::limits::Limits;
use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::task::Context;
use tokio::time::{Duration, Instant};

/// What a connection may be told.
pub(in crate::serving) mod signals {
    /// Close once nothing is in flight: an answer said so, or the connection has been idle.
    pub const CLOSE: u8 = 1;
    /// The server shuts down: the same.
    pub const DRAIN: u8 = 2;
    /// End now.
    pub const KILL: u8 = 4;
}

/// No HTTP/2 control frame we send is this large.
const MORE_THAN_CONTROL: usize = 256;

/// Marks of one connection. Times are milliseconds since its start, plus one; zero is "not so".
#[derive(Debug)]
pub(in crate::serving) struct Activity {
    start: Instant,
    signals: AtomicU8,
    waker: AtomicWaker,
    reads_heads: AtomicBool,
    in_flight: AtomicUsize,
    /// In use, whatever is in flight: a handshake whose first bytes are here, or an upgraded connection.
    engaged: AtomicBool,
    /// The last request's end, or progress after a stall.
    idle_since: AtomicU64,
    /// First byte of a request's head (HTTP/1).
    head_since: AtomicU64,
    /// Since when the peer has taken nothing.
    blocked_since: AtomicU64,
    closing_since: AtomicU64,
    /// Answers' bodies with bytes that HTTP/2 flow control or a full buffer holds back.
    held: AtomicUsize,
    /// HTTP/1: bytes of bodies that are not flushed yet, and whether a body waits for that.
    unflushed: AtomicUsize,
    awaits_flush: AtomicBool,
    /// When such a body last moved.
    moved_at: AtomicU64,
    /// When the peer was last heard (HTTP/2, where it can be asked to say something).
    heard_at: AtomicU64,
    /// When it was asked, and has not been heard since.
    pinged_at: AtomicU64,
}

/// What the clock says.
pub(super) enum Due {
    /// End now, and why.
    Cut(&'static str),
    /// Close gracefully.
    Close,
    /// Ask the peer whether it is there.
    Ping,
    /// Look again then, at the latest.
    At(Instant),
}

impl Activity {
    pub(in crate::serving) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            signals: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            reads_heads: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            engaged: AtomicBool::new(false),
            idle_since: AtomicU64::new(1),
            head_since: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
            closing_since: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            unflushed: AtomicUsize::new(0),
            awaits_flush: AtomicBool::new(false),
            moved_at: AtomicU64::new(0),
            heard_at: AtomicU64::new(0),
            pinged_at: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn at(&self, mark: u64, after: Duration) -> Instant {
        self.start + Duration::from_millis(mark - 1) + after
    }

    /// The handshake is over; `reads_heads`: HTTP/1, whose first head is due from now on.
    pub(super) fn begin(&self, reads_heads: bool) {
        let now = self.now();
        self.idle_since.store(now, Relaxed);
        self.engaged.store(false, Relaxed);
        if reads_heads {
            self.reads_heads.store(true, Relaxed);
            self.head_since.store(now, Relaxed);
        }
    }

    /// The connection is in use from now on, though no request says so.
    pub(super) fn engage(&self) {
        self.engaged.store(true, Relaxed);
    }

    /// Whether the connection is in use, and since when it has been as it is, for comparison with others: what is least
    /// has rested longest.
    pub(in crate::serving) fn quiet_since(&self) -> (bool, Instant) {
        let busy = self.in_flight.load(Acquire) > 0 || self.engaged.load(Relaxed);
        (busy, self.at(self.idle_since.load(Relaxed), Duration::ZERO))
    }

    pub(super) fn begin_closing(&self) {
        self.closing_since.store(self.now(), Relaxed);
    }

    pub(in crate::serving) fn signal(&self, signal: u8) {
        self.signals.fetch_or(signal, AcqRel);
        self.waker.wake();
    }

    /// What was signalled; the task is woken for what comes later.
    pub(super) fn signals(&self, cx: &Context<'_>) -> u8 {
        self.waker.register(cx.waker());
        self.signals.load(Acquire)
    }

    /// A request begins; it ends when the value is dropped.
    pub(in crate::serving) fn request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, AcqRel);
        self.head_since.store(0, Relaxed);
        InFlight {
            activity: Arc::clone(self),
            held: false,
        }
    }

    /// Bytes arrived.
    pub(super) fn read(&self) {
        if self.reads_heads.load(Relaxed) && self.head_since.load(Relaxed) == 0 && self.in_flight.load(Acquire) == 0 {
            self.head_since.store(self.now(), Relaxed);
        }
        if self.heard_at.load(Relaxed) != 0 {
            self.heard();
        }
    }

    /// The peer is there, and pings have begun: they follow whenever it has been silent for long.
    pub(super) fn heard(&self) {
        self.pinged_at.store(0, Relaxed);
        self.heard_at.store(self.now(), Relaxed);
    }

    /// The peer was asked whether it is there.
    pub(super) fn pinged(&self) {
        self.pinged_at.store(self.now(), Relaxed);
    }

    /// Bytes were taken. What remains of an answer after its request's end still counts as activity; pings and other
    /// small frames do not.
    pub(super) fn wrote(&self, bytes: usize) {
        if bytes >= MORE_THAN_CONTROL && self.in_flight.load(Acquire) == 0 {
            self.idle_since.store(self.now(), Relaxed);
        }
    }

    /// Some body has bytes that the peer does not take.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Acquire) > 0
    }

    /// The peer takes nothing more.
    pub(super) fn blocked(&self) {
        if self.blocked_since.load(Relaxed) == 0 {
            self.blocked_since.store(self.now(), Relaxed);
        }
    }

    /// HTTP/1: a body gave bytes, which the transport keeps until it flushes.
    pub(super) fn gave(&self, bytes: usize) {
        self.unflushed.fetch_add(bytes, Relaxed);
    }

    /// HTTP/1: whether bytes are to be flushed before more are made. Then the task is woken by [`flushed`](Self::flushed).
    pub(super) fn awaits_flush(&self) -> bool {
        let waits = self.unflushed.load(Relaxed) > 0;
        if waits {
            self.awaits_flush.store(true, Relaxed);
        }
        waits
    }

    /// HTTP/1: all bytes are with the system. The same task reads and writes these marks.
    pub(super) fn flushed(&self, cx: &Context<'_>) {
        self.unflushed.store(0, Relaxed);
        if self.awaits_flush.swap(false, Relaxed) {
            cx.waker().wake_by_ref();
        }
    }

    /// The peer takes bytes again.
    pub(super) fn unblocked(&self) {
        if self.blocked_since.load(Relaxed) != 0 {
            self.blocked_since.store(0, Relaxed);
            self.idle_since.store(self.now(), Relaxed);
        }
    }

    /// ```text
    /// first that holds            then, after…
    /// peer takes nothing          write_stall: cut (the socket is full, or every body with bytes is held back)
    /// a request is in flight      (only the row above)
    /// closing                     close_grace: cut
    /// a head is being read        header_read: cut
    /// otherwise                   idle: close
    ///
    /// besides, over HTTP/2
    /// asked, and not heard        ping_timeout: cut
    /// not heard                   ping_interval: ping
    /// ```
    pub(super) fn due(&self, limits: &Limits) -> Due {
        let blocked = self.blocked_since.load(Relaxed);
        let idle = self.idle_since.load(Acquire);
        let mut stalled = (blocked != 0).then(|| self.at(blocked, limits.write_stall));
        if stalled.is_none() && self.held.load(Acquire) > 0 {
            stalled = Some(self.at(self.moved_at.load(Relaxed).max(1), limits.write_stall));
        }
        let (at, due) = if self.in_flight.load(Acquire) > 0 {
            // Nothing is due before the request has ended; its end needs no wake-up, because looking again after an
            // idle time is early enough.
            (Instant::now() + limits.idle.min(limits.header_read), Due::Close)
        } else {
            let closing = self.closing_since.load(Relaxed);
            let head = self.head_since.load(Relaxed);
            if closing != 0 {
                let at = self.at(closing.max(idle), limits.close_grace);
                (at, Due::Cut("the peer does not close"))
            } else if head != 0 {
                (
                    self.at(head, limits.header_read),
                    Due::Cut("reading a request's head took too long"),
                )
            } else {
                (self.at(idle, limits.idle), Due::Close)
            }
        };
        let stalled = stalled.map(|at| (at, Due::Cut("the peer reads nothing")));
        let mut next = (at, due);
        for other in [stalled, self.ping_due(limits)].into_iter().flatten() {
            if other.0 < next.0 {
                next = other;
            }
        }
        past(next.0, next.1)
    }

    fn ping_due(&self, limits: &Limits) -> Option<(Instant, Due)> {
        let (heard, pinged) = (self.heard_at.load(Relaxed), self.pinged_at.load(Relaxed));
        if pinged != 0 {
            return Some((
                self.at(pinged, limits.ping_timeout),
                Due::Cut("the peer answers no ping"),
            ));
        }
        (heard != 0).then(|| (self.at(heard, limits.ping_interval), Due::Ping))
    }
}

/// `due` if its time has come.
fn past(at: Instant, due: Due) -> Due {
    if at <= Instant::now() { due } else { Due::At(at) }
}

/// A request in flight: from its head to the last byte of its answer's body.
#[derive(Debug)]
pub(in crate::serving) struct InFlight {
    activity: Arc<Activity>,
    /// Its answer's body gave bytes and has not been asked since.
    held: bool,
}

impl InFlight {
    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The answer's body gave bytes to the transport, which will ask for more when it can take them.
    pub(super) fn hold(&mut self) {
        self.wait();
        self.activity.moved_at.store(self.activity.now(), Relaxed);
    }

    /// The client's window is closed.
    pub(super) fn wait(&mut self) {
        if !std::mem::replace(&mut self.held, true) && self.activity.held.fetch_add(1, AcqRel) == 0 {
            self.activity.moved_at.store(self.activity.now(), Relaxed);
        }
    }

    /// The transport asks that body again, or is done with it.
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
        activity.idle_since.store(activity.now(), Relaxed);
        let before = activity.in_flight.fetch_sub(1, AcqRel);
        if before == 1 && activity.signals.load(Acquire) != 0 {
            activity.waker.wake();
        }
    }
}
