//! Connections of a [`Host`]: `dial` opens one, `adopt` starts HTTP on it, and a task drives it until it ends. Which
//! request uses it is left to `pool` and the checkout.

use super::super::connection_limits::ConnectionPermit;
use super::super::http1::error_text;
use super::super::http2::{self, Http2, Keepalive, KeepaliveState};
use super::{CHECK, Host};
use crate::proxy::dial::{Dialed, Offer, dial_socket, dial_watched};
use crate::proxy::tcp::DialError;
use crate::request::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Pause before another address of the same name is dialed, after a dial led to one that is already
/// connected.
const SPREAD_AGAIN: Duration = Duration::from_secs(30);

/// Awaits a dial for at most `limit`. The message of the timeout is Go's.
pub(in crate::proxy::transport) async fn with_connect_timeout<T>(
    limit: Option<Duration>,
    address: &str,
    dialing: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    let Some(limit) = limit else { return dialing.await };
    match tokio::time::timeout(limit, dialing).await {
        Ok(outcome) => outcome,
        Err(_) => Err(DialError(format!("dial tcp {address}: i/o timeout"))),
    }
}

impl Host {
    pub(super) async fn dial(&self) -> Result<Dialed, DialError> {
        let dialing = async {
            if let Some(socket) = &self.socket {
                return dial_socket(socket, &self.tls, Offer::Any, &self.outbound).await;
            }
            // Locked only for the number: no guard crosses the dial.
            let dial_number = self.lock().next_dial();
            dial_watched(&self.address, &self.tls, Offer::Any, &self.outbound, dial_number).await
        };
        with_connect_timeout(self.connect_timeout, &self.address, dialing).await
    }

    /// Starts HTTP on a new connection: an HTTP/2 connection joins the pool, an HTTP/1.1 one is returned.
    /// With `spreading`, a connection to an address that already has one is discarded.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        dialed: Dialed,
        open: ConnectionPermit,
        spreading: bool,
    ) -> Result<Option<http1::SendRequest<Body>>, DialError> {
        // Weak throughout: a connection's task must not keep the pool, or the connection itself, in use.
        let host = Arc::downgrade(self);
        let peer = dialed.peer;
        {
            let mut s = self.lock();
            s.addresses = dialed.addresses;
            if spreading && s.leads_to(peer) {
                // The other addresses do not answer now; DNS order alone does not lead to them.
                s.spread_at = Instant::now() + SPREAD_AGAIN;
                return Ok(None);
            }
        }
        if !dialed.http2 {
            let (sender, connection) = http1::Builder::new()
                // As Go's client writes header names.
                .title_case_headers(true)
                .handshake(TokioIo::new(dialed.io))
                .await
                .map_err(|e| DialError(error_text(&e, false)))?;
            // From now on each request dials for itself: an HTTP/1.1 connection cannot be shared.
            self.lock().alone = true;
            self.drive(connection, host, open, None);
            return Ok(Some(sender));
        }
        let expected = self.lock().expected_streams;
        let (shared, keepalive, connection) = http2::connect(dialed.io, expected, peer, self.limiter.clone())
            .await
            .map_err(|e| DialError(http2::error_text(&e)))?;
        let shared = Arc::new(shared);
        let mine = Arc::downgrade(&shared);
        self.lock().join(shared);
        self.drive(connection, host, open, Some((mine, keepalive)));
        Ok(None)
    }

    /// Spawns the connection's task, which drives it, prunes idle ones and runs its keepalive.
    fn drive<C, E>(
        &self,
        connection: C,
        host: Weak<Self>,
        open: ConnectionPermit,
        mut http2: Option<(Weak<Http2>, Keepalive)>,
    ) where
        C: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send,
    {
        let stop = self.tasks.stop_signal().clone();
        let authority = self.address.clone();
        self.tasks.spawn("backend connection", async move {
            // Until the task ends, not only while pooled: the limit counts open sockets, retired ones
            // included.
            let _open = open;
            tokio::pin!(connection);
            let mut check = http2::ticks(CHECK);
            loop {
                // The connection comes first, so that data which has already arrived is still read on
                // shutdown.
                tokio::select! {
                    biased;
                    ended = &mut connection => {
                        if let Err(e) = ended {
                            tracing::debug!(%authority, "backend connection ended: {e}");
                            // Only the hook: a request on the connection records its own failure in `health`.
                            if let Some(host) = host.upgrade() {
                                host.report_failure();
                            }
                        }
                        break;
                    }
                    () = stop.wait() => break,
                    _ = check.tick() => {
                        let state = http2.as_mut().map_or(KeepaliveState::Alive, |(_, keepalive)| keepalive.tick());
                        // Gone with its transport, for example after a change of certificates. The keepalive still
                        // runs for the requests that are left: a watch on a dead connection would never end.
                        let host = host.upgrade();
                        match (state, &http2) {
                            (KeepaliveState::Alive, _) | (_, None) => {}
                            (KeepaliveState::PingMissed, Some((http2, _))) => {
                                // Out of the pool before its requests are woken: a retry must not draw this
                                // connection again.
                                if let Some(host) = &host {
                                    host.retire(http2);
                                    host.health.ping_missed("no answer to a ping");
                                }
                                if let Some(http2) = http2.upgrade() {
                                    http2.ping_missed().fire();
                                }
                            }
                            (KeepaliveState::Dead, Some(_)) => {
                                tracing::info!(%authority, "a backend connection is given up: no answer to a ping");
                                break;
                            }
                        }
                        if let Some(host) = host {
                            host.lock().prune(Instant::now());
                        }
                    }
                }
            }
            if let (Some(host), Some((http2, _))) = (host.upgrade(), http2) {
                host.retire(&http2);
            }
        });
    }

    /// Takes a connection out of use for new requests. Requests on it may still complete.
    fn retire(&self, http2: &Weak<Http2>) {
        self.lock().drop_http2(|c| std::ptr::eq(Arc::as_ptr(c), http2.as_ptr()));
    }
}
