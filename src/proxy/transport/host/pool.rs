//! The connections of one address and the shared dial, if one is in progress. Plain data under the lock of
//! [`Host`](super::Host), which dials and drives them.

use super::super::http2::{Http2, Stream};
use crate::proxy::tcp::DialError;
use crate::request::Body;
use hyper::client::conn::http1;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// As in Go's `http.DefaultTransport`, on which upstream's transports are modelled.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Upstream's `MaxIdleConnsPerHost` for client transports (`client-go/transport/cache.go`).
const MAX_IDLE: usize = 25;
/// Connections that are opened only to reach further addresses of the same name, at most.
const MAX_SPREAD: usize = 8;
/// Streams assumed on a new connection until the backend's SETTINGS arrive, if there was none before.
const FIRST_STREAMS: usize = 100;

/// The connections of one address.
pub(super) struct Pool {
    /// Streams that the backend last allowed; the assumption for a new connection until its SETTINGS arrive.
    pub(super) expected_streams: usize,
    http2: Vec<Arc<Http2>>,
    idle: Vec<Idle>,
    /// Counts checkouts, so that equally busy connections are used in rotation.
    checkouts: usize,
    /// Counts dials: each starts with the next address of the name.
    dials: usize,
    /// Number of addresses the name had at the last dial.
    pub(super) addresses: usize,
    /// When a connection to one more of these addresses may be tried.
    pub(super) spread_at: Instant,
    /// The backend last negotiated HTTP/1.1: connections cannot be shared, so each request dials its own.
    pub(super) alone: bool,
    /// The dial in progress that all requests wait for.
    pub(super) dialing: Option<Dialing>,
}

/// The outcome of a dial, `None` while it is in progress.
pub(super) type Dialing = watch::Receiver<Option<Result<(), DialError>>>;

struct Idle {
    sender: http1::SendRequest<Body>,
    since: Instant,
}

/// Number of connections by kind, and of streams in use.
pub(super) struct Counts {
    pub(super) http2: usize,
    pub(super) streams: usize,
    pub(super) idle: usize,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            expected_streams: FIRST_STREAMS,
            http2: Vec::new(),
            idle: Vec::new(),
            checkouts: 0,
            dials: 0,
            addresses: 1,
            spread_at: Instant::now(),
            alone: false,
            dialing: None,
        }
    }

    /// A stream on the least busy HTTP/2 connection, unless that has none left. Dead
    /// connections are removed on the way.
    pub(super) fn free_stream(&mut self) -> Option<Stream> {
        loop {
            let n = self.http2.len();
            if n > 1 {
                self.checkouts = self.checkouts.wrapping_add(1);
            }
            // `min_by_key` returns the first minimum, so the rotating start spreads ties over the
            // connections.
            let around = (0..n).map(|i| self.checkouts.wrapping_add(i) % n);
            let at = around.min_by_key(|at| self.http2[*at].streams())?;
            let connection = &self.http2[at];
            // It takes no more streams: the peer has closed it or sent GOAWAY.
            let Some(max) = connection.most_streams() else {
                self.http2.swap_remove(at);
                continue;
            };
            self.expected_streams = max;
            // Reserved under the pool's lock: concurrent checkouts cannot exceed `max`.
            return (connection.streams() < max).then(|| connection.stream());
        }
    }

    /// Adds an HTTP/2 connection for new requests.
    pub(super) fn join(&mut self, connection: Arc<Http2>) {
        self.alone = false;
        self.http2.push(connection);
    }

    /// Removes the matching connections, so that new requests do not use them.
    pub(super) fn drop_http2(&mut self, which: impl Fn(&Arc<Http2>) -> bool) {
        self.http2.retain(|c| !which(c));
    }

    /// Removes all connections, so that new requests do not use them.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
        self.http2.clear();
    }

    pub(super) fn leads_to(&self, peer: Option<SocketAddr>) -> bool {
        self.http2.iter().any(|c| c.peer() == peer)
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            http2: self.http2.len(),
            streams: self.http2.iter().map(|c| c.streams()).sum(),
            idle: self.idle.len(),
        }
    }

    /// Number of the next dial.
    pub(super) fn next_dial(&mut self) -> usize {
        let number = self.dials;
        self.dials = number.wrapping_add(1);
        number
    }

    pub(super) fn wants_to_spread(&self) -> bool {
        self.http2.len() < self.addresses.min(MAX_SPREAD) && self.dialing.is_none() && Instant::now() >= self.spread_at
    }

    /// The most recently used idle connection.
    pub(super) fn free_connection(&mut self) -> Option<http1::SendRequest<Body>> {
        // From the end, so that surplus connections stay unused and reach the idle timeout.
        while let Some(idle) = self.idle.pop() {
            if !idle.sender.is_closed() && idle.since.elapsed() < IDLE_TIMEOUT {
                return Some(idle.sender);
            }
        }
        None
    }

    /// Keeps an HTTP/1.1 connection whose response has ended; false if there are enough idle ones already.
    pub(super) fn put_idle(&mut self, sender: http1::SendRequest<Body>) -> bool {
        let is_room = self.idle.len() < MAX_IDLE;
        if is_room {
            let since = Instant::now();
            self.idle.push(Idle { sender, since });
        }
        is_room
    }

    pub(super) fn prune(&mut self, now: Instant) {
        self.idle
            .retain(|i| !i.sender.is_closed() && now.saturating_duration_since(i.since) < IDLE_TIMEOUT);
        self.http2
            .retain(|c| c.idle_for(now).is_none_or(|idle| idle < IDLE_TIMEOUT));
    }
}
