//! Large uploads yield to small requests.
//!
//! tokio polls ready tasks in the order in which they became ready, and looks at the sockets when it has polled a number
//! of them. With sixteen uploads under way, a small request would wait until each of them has decrypted and copied what
//! its socket holds. So a connection that has read [`BulkReads::TURN`] bytes without a pause waits here for its next turn.
//! Turns are granted in order of arrival, one per reactor thread and look at the sockets: a small request waits for one
//! turn of one upload, some 50 µs, however many uploads there are. Without other work a turn costs one empty look.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// The connections of a server that wait for a turn to read.
#[derive(Clone, Debug, Default)]
pub(super) struct BulkReads(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Turn>>,
    /// A task hands out turns. It ends when nobody waits.
    is_granting: bool,
}

#[derive(Debug, Default)]
struct Turn {
    is_granted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// How much one connection has read in its turn.
#[derive(Debug)]
pub(super) struct Reader {
    all: BulkReads,
    read: usize,
    /// Set while the connection waits.
    turn: Option<Arc<Turn>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while holding this lock")
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

    fn enqueue(&self, turn: Arc<Turn>) {
        let mut state = lock(&self.0);
        state.waiting.push_back(turn);
        if !std::mem::replace(&mut state.is_granting, true) {
            let all = self.clone();
            tokio::spawn(async move { all.grant().await });
        }
    }

    /// Grants turns until nobody waits. It holds nothing that a connection needs: one that has ended, or does not read
    /// when it is woken, only leaves its turn unused.
    async fn grant(self) {
        let reactors = tokio::runtime::Handle::current().metrics().num_workers();
        loop {
            // tokio defers what yields until it has looked at the sockets, and then polls those that are ready first.
            tokio::task::yield_now().await;
            for _ in 0..reactors {
                let next = {
                    let mut state = lock(&self.0);
                    let next = state.waiting.pop_front();
                    state.is_granting = next.is_some();
                    next
                };
                let Some(turn) = next else { return };
                turn.is_granted.store(true, Ordering::Release);
                let waker = lock(&turn.waker).take();
                if let Some(waker) = waker {
                    waker.wake();
                }
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
        let Some(turn) = &self.turn else {
            let turn = Arc::new(Turn {
                is_granted: AtomicBool::new(false),
                waker: Mutex::new(Some(waker.clone())),
            });
            self.turn = Some(Arc::clone(&turn));
            self.all.enqueue(turn);
            return false;
        };
        // The waker first, so that a grant in between is not missed.
        *lock(&turn.waker) = Some(waker.clone());
        if !turn.is_granted.load(Ordering::Acquire) {
            return false;
        }
        self.turn = None;
        self.read = 0;
        true
    }

    /// Counts what was read. Zero, where the socket is empty: the turn is over, and the next begins when bytes arrive.
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
            lock(&log).push(name);
        }
    }

    #[tokio::test]
    async fn uploads_take_turns() {
        let (all, log) = (BulkReads::default(), Log::default());
        let a = tokio::spawn(upload(all.clone(), 3, "a", log.clone()));
        let b = tokio::spawn(upload(all.clone(), 3, "b", log.clone()));
        a.await.unwrap();
        b.await.unwrap();
        assert_eq!(*lock(&log), ["a", "b", "a", "b", "a", "b"]);
        let state = lock(&all.0);
        assert!(state.waiting.is_empty());
    }

    #[tokio::test]
    async fn other_work_is_done_between_two_turns() {
        let (all, log) = (BulkReads::default(), Log::default());
        let uploads: Vec<_> = (0..16)
            .map(|_| tokio::spawn(upload(all.clone(), 4, "upload", log.clone())))
            .collect();
        // All have had the turn with which each begins, and wait.
        while lock(&log).len() < uploads.len() {
            tokio::task::yield_now().await;
        }
        for _ in 0..8 {
            let before = lock(&log).len();
            let small = log.clone();
            tokio::spawn(async move { lock(&small).push("small") }).await.unwrap();
            let delayed_by = lock(&log)[before..].iter().filter(|name| **name == "upload").count();
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
        while lock(&log).is_empty() {
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
