//! Answers before the answer (1xx, such as `103 Early Hints`): from who knows them, a backend's connection, to who can
//! write them, the client's.
//!
//! An HTTP/1.1 connection has one [`Lane`], since it has one request at a time; an HTTP/2 connection has [`Lanes`], by
//! stream. HTTP/1.0 knows no such answers. `100 Continue` is each hop's own: the server sends it when somebody reads the
//! body.

mod lanes;

pub use lanes::{Lanes, size};

use super::facts::Facts;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use http::{HeaderMap, StatusCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

/// Most bytes that wait for a client to take them; what comes on top is left out.
const MOST_WAITING: usize = 64 << 10;

/// The way of an HTTP/1.1 connection's 1xx answers.
#[derive(Debug, Default)]
pub struct Lane {
    state: Mutex<State>,
    /// There are bytes to write: looked at with every write, so without the lock.
    loaded: AtomicBool,
    task: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    /// Counts requests, and their ends: what an earlier request's backend says late is not said to a later one.
    turn: u64,
    open: bool,
    waiting: BytesMut,
}

/// Sends 1xx answers to one request.
#[derive(Clone, Debug)]
pub struct Interim(Way);

#[derive(Clone, Debug)]
enum Way {
    Turn(Arc<Lane>, u64),
    Stream(Arc<Lanes>, u32),
}

// === impl Lane ===

impl Lane {
    /// A request begins that may be answered so.
    pub fn open(&self) {
        let mut s = self.lock();
        s.turn += 1;
        s.open = true;
    }

    /// The request's answer is about to be written: nothing goes ahead of it any more. Pending while something that was
    /// said before it is not written yet.
    pub fn poll_close(&self, cx: &Context<'_>) -> Poll<()> {
        self.task.register(cx.waker());
        let mut s = self.lock();
        s.open = false;
        match s.waiting.is_empty() && !self.loaded.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            // The transport writes it when this task, which drives both, has looked at everybody; then it wakes us.
            false => Poll::Pending,
        }
    }

    /// The task to wake when there is something to write.
    pub fn register(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
    }

    /// True where there is something to write.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// What is to be written now, once; [`Lane::written`] when it is.
    pub fn take(&self) -> Bytes {
        std::mem::take(&mut self.lock().waiting).freeze()
    }

    /// What was taken has been written.
    pub fn written(&self) {
        let s = self.lock();
        self.loaded.store(!s.waiting.is_empty(), Ordering::Release);
        drop(s);
        self.task.wake();
    }

    fn say(&self, turn: u64, status: StatusCode, headers: &HeaderMap) {
        let mut s = self.lock();
        if !s.open || s.turn != turn {
            return;
        }
        let before = s.waiting.len();
        write(&mut s.waiting, status, headers);
        if s.waiting.len() > MOST_WAITING {
            s.waiting.truncate(before);
            return;
        }
        self.loaded.store(true, Ordering::Release);
        drop(s);
        self.task.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this lock")
    }
}

// === impl Interim ===

impl Interim {
    /// The way back to the client of a request with these facts, where it has one.
    pub fn of(facts: &Facts) -> Option<Self> {
        let cache = facts.connection.as_ref()?;
        if let Some(stream) = facts.stream {
            return Some(Self(Way::Stream(cache.get::<Lanes>()?, stream)));
        }
        let lane = cache.get::<Lane>()?;
        let turn = {
            let s = lane.lock();
            s.open.then_some(s.turn)?
        };
        Some(Self(Way::Turn(lane, turn)))
    }

    /// Sends a 1xx answer. `100` and `101` are not for passing on, and nothing is sent once the answer is there.
    pub fn send(&self, status: StatusCode, headers: &HeaderMap) {
        if !status.is_informational() || status.as_u16() <= 101 {
            return;
        }
        match &self.0 {
            Way::Turn(lane, turn) => lane.say(*turn, status, headers),
            Way::Stream(lanes, stream) => lanes.say(*stream, status, headers),
        }
    }
}

fn write(out: &mut BytesMut, status: StatusCode, headers: &HeaderMap) {
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.put_slice(b"\r\n");
    for (name, value) in headers {
        let mut up = true;
        for b in name.as_str().bytes() {
            out.put_u8(if up { b.to_ascii_uppercase() } else { b });
            up = b == b'-';
        }
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::peer::ConnectionCache;
    use std::task::Waker;

    fn lane() -> (Arc<Lane>, Facts) {
        let (lane, cache) = (Arc::new(Lane::default()), ConnectionCache::default());
        cache.set(lane.clone());
        let connection = Some(cache);
        (
            lane,
            Facts {
                connection,
                ..Facts::default()
            },
        )
    }

    fn hints() -> HeaderMap {
        HeaderMap::from_iter([(http::header::LINK, "</style.css>; rel=preload".parse().unwrap())])
    }

    #[test]
    fn hints_are_written_as_http_and_hold_the_answer_back_until_they_are() {
        let (lane, facts) = lane();
        lane.open();
        let interim = Interim::of(&facts).unwrap();
        interim.send(StatusCode::CONTINUE, &HeaderMap::new());
        assert!(!lane.is_loaded());
        interim.send(StatusCode::EARLY_HINTS, &hints());
        let cx = &Context::from_waker(Waker::noop());
        assert!(lane.poll_close(cx).is_pending());
        assert_eq!(
            lane.take(),
            "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
        );
        assert!(lane.poll_close(cx).is_pending(), "taken is not written");
        lane.written();
        assert!(lane.poll_close(cx).is_ready());
    }

    #[test]
    fn what_one_request_learns_late_is_not_said_to_the_next() {
        let (lane, facts) = lane();
        assert!(Interim::of(&facts).is_none(), "no request");
        lane.open();
        let first = Interim::of(&facts).unwrap();
        let cx = &Context::from_waker(Waker::noop());
        assert!(lane.poll_close(cx).is_ready());
        first.send(StatusCode::EARLY_HINTS, &hints());
        lane.open();
        first.send(StatusCode::EARLY_HINTS, &hints());
        assert!(!lane.is_loaded());
    }

    #[test]
    fn a_client_that_takes_nothing_is_not_collected_for() {
        let (lane, facts) = lane();
        lane.open();
        let interim = Interim::of(&facts).unwrap();
        for _ in 0..10_000 {
            interim.send(StatusCode::EARLY_HINTS, &hints());
        }
        assert!(lane.take().len() <= MOST_WAITING);
    }
}
