//! Large uploads yield to small requests.
//!
//! tokio polls ready tasks in the order in which they became ready, and checks sockets for readiness only after polling
//! a number of tasks. With sixteen uploads in progress, a small request would wait until each upload has decrypted and
//! copied everything in its socket buffer. Therefore a connection that has read [`BulkReads::TURN`] bytes without finding
//! its socket empty waits here for its next turn. Turns are granted first come, first served, one per reactor thread
//! between two readiness checks, so a small request waits for one turn of one upload (about 50 µs), however many uploads
//! there are. On an otherwise idle server a turn costs one additional readiness check.
//!
//! Start at [`Reader::may_read`]. Writes have no turns yet.

use futures_util::task::AtomicWaker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// The queue of connections that wait for a turn to read; one per server.
#[derive(Clone, Debug, Default)]
pub(super) struct BulkReads(Arc<Mutex<State>>);

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

/// Counts what one connection reads in its turn.
#[derive(Debug)]
pub(super) struct Reader {
    all: BulkReads,
    read: usize,
    /// Set while the connection waits.
    turn: Option<Arc<Turn>>,
}

impl BulkReads {
    /// Bytes of one turn: two TLS records.
    pub(super) const TURN: usize = 32 << 10;

    pub(super) fn reader(&self) -> Reader {
        Reader {
            all: self.clone(),
            read: 0,
            turn: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while holding this lock")
    }

    fn enqueue(&self, turn: Arc<Turn>) {
        let mut state = self.lock();
        state.waiting.push_back(turn);
        if !std::mem::replace(&mut state.is_granting, true) {
            let all = self.clone();
            tokio::spawn(async move { all.grant().await });
        }
    }

    /// Grants turns until the queue is empty. A turn is not a lock: a connection that has been closed, or does not read
    /// when woken, leaves its turn unused and delays nobody.
    async fn grant(self) {
        let reactors = tokio::runtime::Handle::current().metrics().num_workers();
        loop {
            // tokio wakes tasks that yield only after its next readiness check, behind the tasks that the check found ready.
            tokio::task::yield_now().await;
            for _ in 0..reactors {
                let next = {
                    let mut state = self.lock();
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

impl Reader {
    /// True if the connection may read now; otherwise `waker` is woken when it may.
    pub(super) fn may_read(&mut self, waker: &Waker) -> bool {
        if self.read < BulkReads::TURN {
            return true;
        }
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
        self.read = 0;
        true
    }

    /// Records bytes read. Zero means that the socket is empty: the turn ends, and the next begins when bytes arrive.
    pub(super) fn has_read(&mut self, bytes: usize) {
        self.read = if bytes == 0 { 0 } else { self.read + bytes };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// Reads `turns` whole turns from a socket that is never empty.
    async fn upload(all: BulkReads, turns: usize, name: &'static str, log: Log) {
        let mut reader = all.reader();
        for _ in 0..turns {
            poll_fn(|cx| match reader.may_read(cx.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            reader.has_read(BulkReads::TURN);
            log.lock().unwrap().push(name);
        }
    }

    #[tokio::test]
    async fn uploads_take_turns() {
        let (all, log) = (BulkReads::default(), Log::default());
        let a = tokio::spawn(upload(all.clone(), 3, "a", log.clone()));
        let b = tokio::spawn(upload(all.clone(), 3, "b", log.clone()));
        a.await.unwrap();
        b.await.unwrap();
        assert_eq!(*log.lock().unwrap(), ["a", "b", "a", "b", "a", "b"]);
        let state = all.lock();
        assert!(state.waiting.is_empty());
    }

    #[tokio::test]
    async fn other_work_is_done_between_two_turns() {
        let (all, log) = (BulkReads::default(), Log::default());
        let uploads: Vec<_> = (0..16)
            .map(|_| tokio::spawn(upload(all.clone(), 4, "upload", log.clone())))
            .collect();
        // All have had the turn with which each begins, and wait.
        while log.lock().unwrap().len() < uploads.len() {
            tokio::task::yield_now().await;
        }
        for _ in 0..8 {
            let before = log.lock().unwrap().len();
            let small = log.clone();
            tokio::spawn(async move { small.lock().unwrap().push("small") })
                .await
                .unwrap();
            let delayed_by = log.lock().unwrap()[before..]
                .iter()
                .filter(|name| **name == "upload")
                .count();
            assert!(delayed_by <= 2, "a small request waited for {delayed_by} turns");
        }
        for upload in uploads {
            upload.await.unwrap();
        }
    }

    #[tokio::test]
    async fn connections_that_end_do_not_hold_up_others() {
        let (all, log) = (BulkReads::default(), Log::default());
        let gone = tokio::spawn(upload(all.clone(), usize::MAX, "gone", log.clone()));
        while log.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        gone.abort();
        upload(all, 3, "stays", log).await;
    }

    #[tokio::test]
    async fn a_connection_whose_socket_was_empty_begins_a_new_turn() {
        let mut reader = BulkReads::default().reader();
        reader.has_read(BulkReads::TURN);
        assert!(!reader.may_read(Waker::noop()));
        let mut reader = BulkReads::default().reader();
        reader.has_read(BulkReads::TURN);
        reader.has_read(0);
        assert!(reader.may_read(Waker::noop()));
    }
}
