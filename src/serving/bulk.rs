//! Large transfers yield to small requests.
//!
//! tokio polls ready tasks in the order in which they became ready, and checks sockets for readiness only
//! after polling a number of tasks. With sixteen uploads in progress, a small request would wait until each
//! upload has decrypted and copied everything in its socket buffer; when a large object changes, it would
//! wait until the event has been encrypted for each of a thousand watches. Therefore a connection that has
//! transferred more than a small amount in one direction waits here for its next turn, of [`BulkTurns::TURN`]
//! bytes. Turns are granted first come, first served, one per reactor thread between two readiness checks, so
//! a small request waits for one turn of one transfer (about 50 µs), however many transfers there are. On an
//! otherwise idle server a turn costs one additional readiness check.
//!
//! Start at [`Reader::may_read`] and [`Writer::may_write`].

use futures_util::task::AtomicWaker;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, MutexGuard};

/// Bytes that a connection may write without a turn, between two flushes: one TLS record.
const SMALL_WRITE: usize = 16 << 10;
/// A rest of a write allowance below this is not worth a TLS record of its own.
const SMALLEST_WRITE: usize = 2 << 10;
/// How often a connection may begin another small write. Without a limit, a long response that is flushed in
/// small pieces would never need a turn.
const SMALL_WRITE_INTERVAL: Duration = Duration::from_millis(1);

/// The queue of connections that wait for a turn to read or to write; one per server.
#[derive(Clone, Debug, Default)]
pub(super) struct BulkTurns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Turn>>,
    /// Set while the granting task runs; it ends when the queue is empty.
    is_granting: bool,
}

#[derive(Debug, Default)]
struct Turn {
    is_granted: AtomicBool,
    waker: AtomicWaker,
}

/// The turn that one connection waits for in one direction.
#[derive(Debug)]
struct Pending {
    all: BulkTurns,
    turn: Option<Arc<Turn>>,
}

/// Counts the bytes that one connection reads in its turn.
#[derive(Debug)]
pub(super) struct Reader {
    pending: Pending,
    read: usize,
}

/// Counts the bytes that one connection writes, in its turn or before it needs one.
#[derive(Debug)]
pub(super) struct Writer {
    pending: Pending,
    /// Bytes that may be written before the next turn.
    left: usize,
    /// When the current small write began.
    small_since: Instant,
}

impl BulkTurns {
    /// Bytes of one turn: two TLS records.
    pub(super) const TURN: usize = 32 << 10;

    pub(super) fn reader(&self) -> Reader {
        Reader {
            pending: self.pending(),
            read: 0,
        }
    }

    pub(super) fn writer(&self) -> Writer {
        Writer {
            pending: self.pending(),
            left: SMALL_WRITE,
            small_since: Instant::now(),
        }
    }

    fn pending(&self) -> Pending {
        Pending {
            all: self.clone(),
            turn: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    fn enqueue(&self, turn: Arc<Turn>) {
        let mut state = self.lock();
        state.waiting.push_back(turn);
        if !std::mem::replace(&mut state.is_granting, true) {
            let all = self.clone();
            // Owned by nobody: it ends when the queue is empty, and holds nothing but the queue.
            tokio::spawn(async move { all.grant().await });
        }
    }

    /// Grants turns until the queue is empty. A turn is not a lock: a connection that has been closed, or
    /// transfers nothing when woken, leaves its turn unused and delays nobody.
    async fn grant(self) {
        let reactors = tokio::runtime::Handle::current().metrics().num_workers();
        loop {
            // tokio wakes tasks that yield only after its next readiness check, behind the tasks that the
            // check found ready.
            tokio::task::yield_now().await;
            for _ in 0..reactors {
                let next = {
                    let mut state = self.lock();
                    // In the same critical section: whoever enqueues after it sees that a new task is needed.
                    let next = state.waiting.pop_front();
                    state.is_granting = next.is_some();
                    next
                };
                let Some(turn) = next else { return };
                turn.is_granted.store(true, Ordering::Release);
                turn.waker.wake();
            }
        }
    }
}

impl Pending {
    /// True once a turn has been granted; until then `waker` is woken when it is.
    fn granted(&mut self, waker: &Waker) -> bool {
        // Enqueued once; later polls find the same turn, so a connection cannot queue twice.
        let turn = self.turn.get_or_insert_with(|| {
            let turn = Arc::<Turn>::default();
            self.all.enqueue(Arc::clone(&turn));
            turn
        });
        // The waker first, so that a grant in between is not missed.
        turn.waker.register(waker);
        if !turn.is_granted.load(Ordering::Acquire) {
            return false;
        }
        self.turn = None;
        true
    }
}

impl Reader {
    /// True if the connection may read now; otherwise `waker` is woken when it may.
    pub(super) fn may_read(&mut self, waker: &Waker) -> bool {
        if self.read < BulkTurns::TURN {
            return true;
        }
        let granted = self.pending.granted(waker);
        if granted {
            self.read = 0;
        }
        granted
    }

    /// Records bytes read. Zero means that the socket is empty: the turn ends, and the next begins when bytes
    /// arrive.
    pub(super) fn has_read(&mut self, bytes: usize) {
        self.read = if bytes == 0 { 0 } else { self.read + bytes };
    }
}

impl Writer {
    /// How many bytes the connection may write now. `None` means none: `waker` is woken when it may write
    /// again.
    pub(super) fn may_write(&mut self, waker: &Waker) -> Option<usize> {
        if self.left == 0 {
            if !self.pending.granted(waker) {
                return None;
            }
            self.left = BulkTurns::TURN;
        }
        Some(self.left)
    }

    /// Records bytes written.
    pub(super) fn has_written(&mut self, bytes: usize) {
        self.left = match self.left.saturating_sub(bytes) {
            rest if rest < SMALLEST_WRITE => 0,
            rest => rest,
        };
    }

    /// Records that everything has been written and flushed. The next write may again be small.
    pub(super) fn has_flushed(&mut self) {
        if self.left < SMALL_WRITE && self.pending.turn.is_none() && self.small_since.elapsed() >= SMALL_WRITE_INTERVAL
        {
            self.left = SMALL_WRITE;
            self.small_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// Reads `turns` whole turns from a socket that is never empty.
    async fn upload(all: BulkTurns, turns: usize, name: &'static str, log: Log) {
        let mut reader = all.reader();
        for _ in 0..turns {
            poll_fn(|cx| match reader.may_read(cx.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            reader.has_read(BulkTurns::TURN);
            log.lock().push(name);
        }
    }

    #[tokio::test]
    async fn uploads_take_turns() {
        let (all, log) = (BulkTurns::default(), Log::default());
        let a = tokio::spawn(upload(all.clone(), 3, "a", log.clone()));
        let b = tokio::spawn(upload(all.clone(), 3, "b", log.clone()));
        a.await.unwrap();
        b.await.unwrap();
        assert_eq!(*log.lock(), ["a", "b", "a", "b", "a", "b"]);
        let state = all.lock();
        assert!(state.waiting.is_empty());
    }

    #[tokio::test]
    async fn other_work_is_done_between_two_turns() {
        let (all, log) = (BulkTurns::default(), Log::default());
        let uploads: Vec<_> = (0..16)
            .map(|_| tokio::spawn(upload(all.clone(), 4, "upload", log.clone())))
            .collect();
        // All have had the turn with which each begins, and wait.
        while log.lock().len() < uploads.len() {
            tokio::task::yield_now().await;
        }
        for _ in 0..8 {
            let before = log.lock().len();
            let small = log.clone();
            tokio::spawn(async move { small.lock().push("small") }).await.unwrap();
            let delayed_by = log.lock()[before..].iter().filter(|name| **name == "upload").count();
            assert!(delayed_by <= 2, "a small request waited for {delayed_by} turns");
        }
        for upload in uploads {
            upload.await.unwrap();
        }
    }

    #[tokio::test]
    async fn closed_connections_do_not_delay_others() {
        let (all, log) = (BulkTurns::default(), Log::default());
        let gone = tokio::spawn(upload(all.clone(), usize::MAX, "gone", log.clone()));
        while log.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        gone.abort();
        upload(all, 3, "stays", log).await;
    }

    #[tokio::test]
    async fn a_connection_whose_socket_was_empty_begins_a_new_turn() {
        let mut reader = BulkTurns::default().reader();
        reader.has_read(BulkTurns::TURN);
        assert!(!reader.may_read(Waker::noop()));
        let mut reader = BulkTurns::default().reader();
        reader.has_read(BulkTurns::TURN);
        reader.has_read(0);
        assert!(reader.may_read(Waker::noop()));
    }

    #[tokio::test]
    async fn large_writes_need_turns_and_small_ones_do_not() {
        let mut writer = BulkTurns::default().writer();
        let cx = Waker::noop();
        assert_eq!(writer.may_write(cx), Some(SMALL_WRITE));
        writer.has_written(SMALL_WRITE - 100);
        assert_eq!(writer.may_write(cx), None, "a rest of 100 bytes is not worth a record");
        poll_fn(|cx| match writer.may_write(cx.waker()) {
            Some(BulkTurns::TURN) => Poll::Ready(()),
            other => {
                assert_eq!(other, None);
                Poll::Pending
            }
        })
        .await;
        writer.has_written(BulkTurns::TURN);
        assert_eq!(writer.may_write(cx), None);
        writer.has_flushed();
        assert_eq!(writer.may_write(cx), None, "a flush does not end the wait for a turn");
    }

    #[test]
    fn small_writes_may_follow_each_other_at_intervals() {
        let mut writer = BulkTurns::default().writer();
        writer.has_written(SMALL_WRITE / 2);
        writer.small_since = Instant::now() + SMALL_WRITE_INTERVAL;
        writer.has_flushed();
        assert_eq!(writer.left, SMALL_WRITE / 2, "another small write, too early");
        writer.small_since = Instant::now() - SMALL_WRITE_INTERVAL;
        writer.has_flushed();
        assert_eq!(writer.left, SMALL_WRITE);
    }
}
