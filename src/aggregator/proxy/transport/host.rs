//! The connections to one `host:port`.

use super::super::dial::{DialError, Dialed, Offer, dial};
use super::super::tls::ClientTls;
use crate::request::Body;
use crate::tasks::TaskGroup;
use http::HeaderValue;
use http::uri::Authority;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
const IDLE_CHECK: Duration = Duration::from_secs(30);
const MOST_IDLE: usize = 25;
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
const HEADER_LIST: u32 = 1 << 20;

/// Connections to one address, under one TLS configuration.
pub(super) struct Host {
    pub(super) authority: Authority,
    pub(super) value: HeaderValue,
    tls: Arc<ClientTls>,
    tasks: TaskGroup,
    state: Mutex<State>,
    /// Streams that the backend allowed on its last connection: what a new one gets until its settings arrive.
    expected_streams: AtomicUsize,
}

#[derive(Default)]
struct State {
    http2: Vec<Arc<Http2>>,
    idle: Vec<Idle>,
    /// The backend chose HTTP/1.1 last time: connections cannot be shared, so everybody dials alone.
    alone: bool,
    /// The dial that everybody waits for.
    dialing: Option<watch::Receiver<Option<Result<(), DialError>>>>,
}

struct Http2 {
    sender: http2::SendRequest<Body>,
    streams: AtomicUsize,
    /// What the backend allows, as of the last time the connection was looked at.
    most_streams: AtomicUsize,
    used: AtomicBool,
    /// Tells the connection's task to look at what the backend allows: hyper does not wake it for settings.
    look: Arc<Notify>,
    last_end: Mutex<Instant>,
}

struct Idle {
    sender: http1::SendRequest<Body>,
    since: Instant,
}

/// A connection to send one request on.
pub(super) enum Lease {
    Http2(Stream),
    Http1 {
        sender: http1::SendRequest<Body>,
        reused: bool,
    },
}

/// One stream's place on an HTTP/2 connection.
pub(super) struct Stream {
    connection: Arc<Http2>,
    reused: bool,
}

// === impl Host ===

impl Host {
    pub(super) fn new(authority: Authority, value: HeaderValue, tls: Arc<ClientTls>, tasks: TaskGroup) -> Self {
        Self {
            authority,
            value,
            tls,
            tasks,
            state: Mutex::default(),
            expected_streams: AtomicUsize::new(100),
        }
    }

    /// A connection: one that is there, or a new one.
    pub(super) async fn checkout(self: &Arc<Self>) -> Result<Lease, DialError> {
        loop {
            let (idle, dialing) = {
                let mut s = self.lock();
                if let Some(stream) = s.free_stream() {
                    return Ok(Lease::Http2(stream));
                }
                match s.free_connection() {
                    Some(sender) => (Some(sender), None),
                    None if s.alone => (None, None),
                    None => (None, Some(self.shared_dial(&mut s))),
                }
            };
            if let Some(mut sender) = idle {
                // Ready at once, or as soon as the last answer's end was read; an error is a connection that closed.
                if sender.ready().await.is_ok() {
                    return Ok(Lease::Http1 { sender, reused: true });
                }
                continue;
            }
            let Some(mut dialing) = dialing else {
                // Boxed: a handshake's future is some 8 kB, which every request would make room for.
                let connection = Box::pin(async {
                    let dialed = dial(self.authority.as_str(), &self.tls, Offer::Any).await?;
                    self.adopt(dialed).await
                });
                if let Some(sender) = connection.await? {
                    return Ok(Lease::Http1 { sender, reused: false });
                }
                continue;
            };
            let outcome = match dialing.wait_for(Option::is_some).await {
                Ok(outcome) => outcome.clone(),
                Err(_) => Some(Err(DialError("dial aborted".into()))),
            };
            if let Some(Err(e)) = outcome {
                return Err(e);
            }
        }
    }

    /// Joins the dial under way, or starts one in a task of its own, so that it outlives the client that asked first.
    fn shared_dial(self: &Arc<Self>, s: &mut State) -> watch::Receiver<Option<Result<(), DialError>>> {
        if let Some(dialing) = &s.dialing {
            return dialing.clone();
        }
        let (tell, dialing) = watch::channel(None);
        s.dialing = Some(dialing.clone());
        let host = self.clone();
        let started = self.tasks.spawn("dial a backend", async move {
            let outcome = match dial(host.authority.as_str(), &host.tls, Offer::Any).await {
                Ok(dialed) => host.adopt(dialed).await,
                Err(e) => Err(e),
            };
            let outcome = outcome.map(|http1| {
                if let Some(sender) = http1 {
                    host.give_back(sender);
                }
            });
            host.lock().dialing = None;
            tell.send_replace(Some(outcome));
        });
        if !started {
            s.dialing = None;
        }
        dialing
    }

    /// Starts the HTTP side of a new connection: an HTTP/2 one joins the pool, an HTTP/1.1 one is the caller's.
    async fn adopt(self: &Arc<Self>, dialed: Dialed) -> Result<Option<http1::SendRequest<Body>>, DialError> {
        let host = Arc::downgrade(self);
        let io = TokioIo::new(dialed.io);
        let failed = |e: hyper::Error| DialError(super::error_text(&e, false));
        if !dialed.http2 {
            let (sender, connection) = http1::Builder::new()
                .title_case_headers(true)
                .handshake(io)
                .await
                .map_err(failed)?;
            self.lock().alone = true;
            self.drive(connection, host, None, Arc::default());
            return Ok(Some(sender));
        }
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_max_send_streams(self.expected_streams.load(Ordering::Relaxed))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST)
            .handshake(io)
            .await
            .map_err(failed)?;
        let look = Arc::new(Notify::new());
        let shared = Arc::new(Http2 {
            sender,
            streams: AtomicUsize::new(0),
            most_streams: AtomicUsize::new(connection.current_max_send_streams()),
            used: AtomicBool::new(false),
            look: look.clone(),
            last_end: Mutex::new(Instant::now()),
        });
        let mine = Arc::downgrade(&shared);
        {
            let mut s = self.lock();
            s.alone = false;
            s.http2.push(shared);
        }
        let (told, here) = (mine.clone(), host.clone());
        let watched = std::future::poll_fn(move |cx| {
            let polled = Pin::new(&mut connection).poll(cx);
            let allowed = connection.current_max_send_streams();
            if let Some(told) = told.upgrade()
                && told.most_streams.swap(allowed, Ordering::Relaxed) != allowed
                && let Some(here) = here.upgrade()
            {
                here.expected_streams.store(allowed, Ordering::Relaxed);
            }
            polled
        });
        self.drive(watched, host, Some(mine), look);
        Ok(None)
    }

    /// The task of a connection: drives it, and looks after idle ones now and then.
    fn drive<C>(&self, connection: C, host: Weak<Self>, http2: Option<Weak<Http2>>, look: Arc<Notify>)
    where
        C: Future<Output = hyper::Result<()>> + Send + 'static,
    {
        let stop = self.tasks.stop_signal().clone();
        let authority = self.authority.clone();
        self.tasks.spawn("backend connection", async move {
            tokio::pin!(connection);
            let mut check = tokio::time::interval_at(Instant::now() + IDLE_CHECK, IDLE_CHECK);
            loop {
                // The connection first: what the backend said last is still read when we are stopping.
                tokio::select! {
                    biased;
                    ended = &mut connection => {
                        if let Err(e) = ended {
                            tracing::debug!(%authority, "backend connection ended: {e}");
                        }
                        break;
                    }
                    () = stop.wait() => break,
                    () = look.notified() => {}
                    _ = check.tick() => match host.upgrade() {
                        Some(host) => host.lock().prune(Instant::now()),
                        None => check.reset_after(IDLE_TIMEOUT),
                    },
                }
            }
            if let (Some(host), Some(http2)) = (host.upgrade(), http2) {
                host.lock()
                    .http2
                    .retain(|c| !std::ptr::eq(Arc::as_ptr(c), http2.as_ptr()));
            }
        });
    }

    /// Keeps an HTTP/1.1 connection whose answer has ended.
    pub(super) fn give_back(&self, sender: http1::SendRequest<Body>) {
        if sender.is_closed() {
            return;
        }
        let mut s = self.lock();
        if s.idle.len() < MOST_IDLE {
            s.idle.push(Idle {
                sender,
                since: Instant::now(),
            });
        }
    }

    /// Takes an HTTP/2 connection out of the pool.
    pub(super) fn forget(&self, stream: &Stream) {
        self.lock().http2.retain(|c| !Arc::ptr_eq(c, &stream.connection));
    }

    pub(super) fn close_idle(&self) {
        let mut s = self.lock();
        s.idle.clear();
        s.http2.clear();
    }

    pub(super) fn is_idle(&self) -> bool {
        let s = self.lock();
        s.dialing.is_none() && s.http2.iter().all(|c| c.streams.load(Ordering::Relaxed) == 0)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this lock")
    }
}

// === impl State ===

impl State {
    /// A stream on the least busy connection that has one left.
    fn free_stream(&mut self) -> Option<Stream> {
        self.http2.retain(|c| !c.sender.is_closed());
        let connection = self.http2.iter().min_by_key(|c| c.streams.load(Ordering::Relaxed))?;
        if connection.streams.load(Ordering::Relaxed) >= connection.most_streams.load(Ordering::Relaxed) {
            return None;
        }
        connection.streams.fetch_add(1, Ordering::Relaxed);
        Some(Stream {
            connection: connection.clone(),
            reused: connection.used.swap(true, Ordering::Relaxed),
        })
    }

    /// The most recently used idle connection.
    fn free_connection(&mut self) -> Option<http1::SendRequest<Body>> {
        while let Some(idle) = self.idle.pop() {
            if !idle.sender.is_closed() && idle.since.elapsed() < IDLE_TIMEOUT {
                return Some(idle.sender);
            }
        }
        None
    }

    fn prune(&mut self, now: Instant) {
        self.idle
            .retain(|i| !i.sender.is_closed() && now.saturating_duration_since(i.since) < IDLE_TIMEOUT);
        self.http2.retain(|c| {
            let last = *c.last_end.lock().expect("no code panics while holding this lock");
            c.streams.load(Ordering::Relaxed) > 0 || now.saturating_duration_since(last) < IDLE_TIMEOUT
        });
    }
}

// === impl Stream ===

impl Stream {
    pub(super) fn sender(&self) -> http2::SendRequest<Body> {
        self.connection.sender.clone()
    }

    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    /// The head of the first answer is there, and so are the backend's settings.
    pub(super) fn answered(&self) {
        if !self.reused {
            self.connection.look.notify_one();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.connection.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self
                .connection
                .last_end
                .lock()
                .expect("no code panics while holding this lock") = Instant::now();
        }
    }
}
