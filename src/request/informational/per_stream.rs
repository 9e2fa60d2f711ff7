//! Informational (1xx) responses over HTTP/2, queued per stream.

use http::{HeaderMap, Response, StatusCode};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::sync::{Mutex, MutexGuard};

/// Maximum number of bytes queued on a connection; further informational responses are dropped.
const MAX_QUEUED_BYTES: usize = 64 << 10;

/// Queue of informational responses of one HTTP/2 connection, keyed by stream id. Stored in its
/// `ConnectionCache`.
#[derive(Debug)]
pub(crate) struct H2InformationalQueue {
    waiting: Mutex<Waiting>,
    /// Whether anything is queued. Checked on every response, hence outside the lock.
    loaded: AtomicBool,
    task: Waker,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By stream: each of a connection's streams looks for its own in a round, of thousands that may be queued.
    queued: HashMap<u32, Vec<Response<()>>>,
    bytes: usize,
}

impl H2InformationalQueue {
    /// A queue that wakes `task`, the connection's driver, when a response is added.
    pub(crate) fn new(task: Waker) -> Self {
        Self {
            waiting: Mutex::default(),
            loaded: AtomicBool::new(false),
            task,
        }
    }

    /// True if a response is queued on any stream.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Takes the responses queued for a stream, in order.
    pub(crate) fn take(&self, stream: u32) -> Vec<Response<()>> {
        let mut waiting = self.lock();
        let mine = waiting.queued.remove(&stream).unwrap_or_default();
        waiting.bytes -= mine.iter().map(|early| size(early.headers())).sum::<usize>();
        self.loaded.store(!waiting.queued.is_empty(), Ordering::Release);
        mine
    }

    /// Drops everything queued. The remaining hints belong to streams that have ended.
    pub(crate) fn clear(&self) {
        let mut waiting = self.lock();
        *waiting = Waiting::default();
        self.loaded.store(false, Ordering::Release);
    }

    /// Queues a response on a stream. It is never sent if the final response comes first.
    pub(crate) fn push(&self, stream: u32, status: StatusCode, headers: &HeaderMap) {
        let mut waiting = self.lock();
        let bytes = waiting.bytes + size(headers);
        // Dropped silently: a hint is optional, and a backend must not fill the memory of this process.
        if bytes > MAX_QUEUED_BYTES {
            return;
        }
        let mut early = Response::new(());
        *early.status_mut() = status;
        *early.headers_mut() = headers.clone();
        waiting.bytes = bytes;
        waiting.queued.entry(stream).or_default().push(early);
        self.loaded.store(true, Ordering::Release);
        drop(waiting);
        self.task.wake_by_ref();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

/// Size of a header list as HTTP/2 counts it: each field costs its length plus 32 bytes (RFC 9113, section
/// 6.5.2).
pub(crate) fn size(headers: &HeaderMap) -> usize {
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
    fn hints_are_queued_per_stream_and_bounded_per_connection() {
        let queue = H2InformationalQueue::new(Waker::noop().clone());
        let hint = |n: u32| HeaderMap::from_iter([(http::header::LINK, n.into())]);
        for (stream, n) in [(1, 10), (3, 30), (1, 11)] {
            queue.push(stream, StatusCode::EARLY_HINTS, &hint(n));
        }
        let queued = queue.take(1);
        assert_eq!(
            queued.iter().map(|r| r.headers().clone()).collect::<Vec<_>>(),
            [hint(10), hint(11)]
        );
        assert!(queue.is_loaded());
        queue.clear();
        assert!(!queue.is_loaded() && queue.take(3).is_empty());
        for n in 0..10_000 {
            queue.push(5, StatusCode::EARLY_HINTS, &hint(n));
        }
        // Would take minutes if each looked through the whole queue.
        assert!((6..1_000_000).all(|stream| queue.take(stream).is_empty()));
        let kept: usize = queue.take(5).iter().map(|r| size(r.headers())).sum();
        assert!((MAX_QUEUED_BYTES / 2..=MAX_QUEUED_BYTES).contains(&kept), "{kept}");
        assert!(!queue.is_loaded());
    }
}
