//! Informational (1xx) responses such as `103 Early Hints`, carried from a backend's connection to the
//! client's.
//!
//! [`InformationalSender::of`] gives a proxy the sender for one request. HTTP/1.1 connections have one
//! [`H1InformationalQueue`], because they carry one request at a time; HTTP/2 connections have
//! [`H2InformationalQueue`], keyed by stream id. HTTP/1.0 has no 1xx responses. `100 Continue` is hop-by-hop:
//! the server sends its own when a handler starts to read the body.

mod per_stream;

pub(crate) use per_stream::{H2InformationalQueue, size};

use super::context::RequestContext;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use crate::sync::{Mutex, MutexGuard};

/// Maximum number of bytes queued for a client; further informational responses are dropped.
const MAX_QUEUED_BYTES: usize = 64 << 10;

/// Queue of informational responses on an HTTP/1.1 connection.
#[derive(Debug, Default)]
pub(crate) struct H1InformationalQueue {
    state: Mutex<State>,
    /// Whether bytes are pending. Checked on every write, hence outside the lock.
    loaded: AtomicBool,
    task: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the current request, so that a late 1xx from an earlier request's backend is not sent to the
    /// next one.
    request_number: u64,
    open: bool,
    waiting: BytesMut,
}

/// Sender of informational responses for one request.
#[derive(Clone, Debug)]
pub(crate) struct InformationalSender(Target);

#[derive(Clone, Debug)]
enum Target {
    H1(Arc<H1InformationalQueue>, u64),
    H2(Arc<H2InformationalQueue>, u32),
}

// === impl H1InformationalQueue ===

impl H1InformationalQueue {
    /// Starts a new request that may receive informational responses.
    pub(crate) fn begin_request(&self) {
        let mut s = self.lock();
        s.request_number += 1;
        s.open = true;
    }

    /// Stops accepting informational responses because the final response is about to be written. Pending
    /// until those already queued are on the wire, so that they precede the final response.
    pub(crate) fn poll_close(&self, cx: &Context<'_>) -> Poll<()> {
        // Registered before the check, so that a wake in between is not lost.
        self.task.register(cx.waker());
        let mut s = self.lock();
        s.open = false;
        // Both: `waiting` is empty already while taken bytes are still being written.
        match s.waiting.is_empty() && !self.loaded.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            // The task that polls us also drives the transport: it flushes the queue after this poll, then
            // wakes us.
            false => Poll::Pending,
        }
    }

    /// Registers the task to wake when bytes are queued.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
    }

    /// True if there are bytes to write.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Takes the queued bytes; the caller reports completion with [`H1InformationalQueue::mark_written`].
    pub(crate) fn take(&self) -> Bytes {
        std::mem::take(&mut self.lock().waiting).freeze()
    }

    /// Marks the bytes from [`H1InformationalQueue::take`] as written.
    pub(crate) fn mark_written(&self) {
        let s = self.lock();
        // Under the lock, or bytes pushed in between would be marked as written.
        self.loaded.store(!s.waiting.is_empty(), Ordering::Release);
        drop(s);
        self.task.wake();
    }

    fn push(&self, request_number: u64, status: StatusCode, headers: &HeaderMap) {
        let mut s = self.lock();
        if !s.open || s.request_number != request_number {
            return;
        }
        let before = s.waiting.len();
        write(&mut s.waiting, status, headers);
        if s.waiting.len() > MAX_QUEUED_BYTES {
            // Drop the whole response: a part of it would corrupt the stream.
            s.waiting.truncate(before);
            return;
        }
        self.loaded.store(true, Ordering::Release);
        drop(s);
        self.task.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

// === impl InformationalSender ===

impl InformationalSender {
    /// The sender for the request with this context; `None` if its connection does not support 1xx responses.
    pub(crate) fn of(context: &RequestContext) -> Option<Self> {
        let cache = context.connection.as_ref()?;
        if let Some(stream) = context.stream {
            return Some(Self(Target::H2(cache.get::<H2InformationalQueue>()?, stream)));
        }
        let queue = cache.get::<H1InformationalQueue>()?;
        let request_number = {
            let s = queue.lock();
            s.open.then_some(s.request_number)?
        };
        Some(Self(Target::H1(queue, request_number)))
    }

    /// Queues an informational response. `100` and `101` are hop-by-hop and ignored, as is anything sent
    /// after the final response has begun.
    pub(crate) fn send(&self, status: StatusCode, headers: &HeaderMap) {
        if !status.is_informational() || status.as_u16() <= 101 {
            return;
        }
        match &self.0 {
            Target::H1(queue, request_number) => queue.push(*request_number, status, headers),
            Target::H2(queue, stream) => queue.push(*stream, status, headers),
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
        // hyper writes HTTP/1 names in lower case; these match the title case of the final response's
        // headers.
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

    fn queue() -> (Arc<H1InformationalQueue>, RequestContext) {
        let (queue, cache) = (Arc::new(H1InformationalQueue::default()), ConnectionCache::default());
        cache.set(queue.clone());
        let connection = Some(cache);
        (
            queue,
            RequestContext {
                connection,
                ..RequestContext::default()
            },
        )
    }

    fn hints() -> HeaderMap {
        HeaderMap::from_iter([(http::header::LINK, "</style.css>; rel=preload".parse().unwrap())])
    }

    #[test]
    fn the_final_response_waits_until_queued_hints_are_written() {
        let (queue, context) = queue();
        queue.begin_request();
        let informational = InformationalSender::of(&context).unwrap();
        informational.send(StatusCode::CONTINUE, &HeaderMap::new());
        assert!(!queue.is_loaded());
        informational.send(StatusCode::EARLY_HINTS, &hints());
        let cx = &Context::from_waker(Waker::noop());
        assert!(queue.poll_close(cx).is_pending());
        assert_eq!(
            queue.take(),
            "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
        );
        assert!(queue.poll_close(cx).is_pending(), "taken, but not yet written");
        queue.mark_written();
        assert!(queue.poll_close(cx).is_ready());
    }

    #[test]
    fn late_hints_of_one_request_are_not_sent_to_the_next() {
        let (queue, context) = queue();
        assert!(InformationalSender::of(&context).is_none(), "no request");
        queue.begin_request();
        let first = InformationalSender::of(&context).unwrap();
        let cx = &Context::from_waker(Waker::noop());
        assert!(queue.poll_close(cx).is_ready());
        first.send(StatusCode::EARLY_HINTS, &hints());
        queue.begin_request();
        first.send(StatusCode::EARLY_HINTS, &hints());
        assert!(!queue.is_loaded());
    }

    #[test]
    fn hints_beyond_the_queue_limit_are_dropped() {
        let (queue, context) = queue();
        queue.begin_request();
        let informational = InformationalSender::of(&context).unwrap();
        for _ in 0..10_000 {
            informational.send(StatusCode::EARLY_HINTS, &hints());
        }
        assert!(queue.take().len() <= MAX_QUEUED_BYTES);
    }
}
