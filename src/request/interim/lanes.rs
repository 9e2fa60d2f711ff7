//! 1xx answers over HTTP/2, where every stream has its own.

use http::{HeaderMap, Response, StatusCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

/// Most bytes that wait on a connection for its task; what comes on top is left out.
const MOST_WAITING: usize = 64 << 10;

/// The ways of one connection's 1xx answers, by the number of the stream. Found in the connection's cache.
#[derive(Debug)]
pub struct Lanes {
    waiting: Mutex<Waiting>,
    /// There is something to say: looked at with every answer, so without the lock.
    loaded: AtomicBool,
    task: Waker,
}

#[derive(Debug, Default)]
struct Waiting {
    said: Vec<(u32, Response<()>)>,
    bytes: usize,
}

impl Lanes {
    /// Ways that wake `task` when there is something to say.
    pub fn new(task: Waker) -> Self {
        Self {
            waiting: Mutex::default(),
            loaded: AtomicBool::new(false),
            task,
        }
    }

    /// True where there is something to say.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// What is to be said on a stream, in order.
    pub fn take(&self, stream: u32) -> Vec<Response<()>> {
        let mut waiting = self.lock();
        let (mine, others) = waiting.said.drain(..).partition(|(of, _)| *of == stream);
        waiting.said = others;
        let mine: Vec<(u32, Response<()>)> = mine;
        waiting.bytes -= mine.iter().map(|(_, early)| size(early.headers())).sum::<usize>();
        self.loaded.store(!waiting.said.is_empty(), Ordering::Release);
        mine.into_iter().map(|(_, early)| early).collect()
    }

    /// What is left is for streams that are over.
    pub fn clear(&self) {
        let mut waiting = self.lock();
        *waiting = Waiting::default();
        self.loaded.store(false, Ordering::Release);
    }

    /// Says something on a stream, unless its answer comes first.
    pub fn say(&self, stream: u32, status: StatusCode, headers: &HeaderMap) {
        let mut waiting = self.lock();
        let bytes = waiting.bytes + size(headers);
        if bytes > MOST_WAITING {
            return;
        }
        let mut early = Response::new(());
        *early.status_mut() = status;
        *early.headers_mut() = headers.clone();
        waiting.bytes = bytes;
        waiting.said.push((stream, early));
        self.loaded.store(true, Ordering::Release);
        drop(waiting);
        self.task.wake_by_ref();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no code panics while holding this lock")
    }
}

/// What headers count for, as HTTP/2 counts them.
pub fn size(headers: &HeaderMap) -> usize {
    const EACH: usize = 32;
    let fields = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + EACH);
    EACH + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_hears_its_own_and_a_connection_that_takes_nothing_is_not_collected_for() {
        let lanes = Lanes::new(Waker::noop().clone());
        let hint = |n: u32| HeaderMap::from_iter([(http::header::LINK, n.into())]);
        for (stream, n) in [(1, 10), (3, 30), (1, 11)] {
            lanes.say(stream, StatusCode::EARLY_HINTS, &hint(n));
        }
        let said = lanes.take(1);
        assert_eq!(
            said.iter().map(|r| r.headers().clone()).collect::<Vec<_>>(),
            [hint(10), hint(11)]
        );
        assert!(lanes.is_loaded());
        lanes.clear();
        assert!(!lanes.is_loaded() && lanes.take(3).is_empty());
        for n in 0..10_000 {
            lanes.say(5, StatusCode::EARLY_HINTS, &hint(n));
        }
        let kept: usize = lanes.take(5).iter().map(|r| size(r.headers())).sum();
        assert!((MOST_WAITING / 2..=MOST_WAITING).contains(&kept), "{kept}");
        assert!(!lanes.is_loaded());
    }
}
