//! The running server: [`Server::serve`] starts the accept loop, [`ServerHandle::drain`] shuts it down.

use super::activity::{Activity, signals};
use super::bulk::BulkTurns;
use super::connection::{self, Connection, ConnectionGuards};
use super::fair_semaphore::FairSemaphore;
use super::limits::Limits;
use super::listener::Listener;
use super::registry::Registry;
use super::slots::Slots;
use super::tls::TlsConfig;
use crate::request::Handler;
use crate::telemetry::port::PortMetrics;
use crate::telemetry::spans;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// Configuration of a server: its handler and its limits.
pub(crate) struct Server {
    /// Certificates and TLS versions.
    pub tls: Arc<TlsConfig>,
    /// Timeouts, sizes, and numbers of connections.
    pub limits: Limits,
    pub handler: Arc<dyn Handler>,
    /// Metrics of the port.
    pub metrics: PortMetrics,
}

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Every connection ended in time.
    Clean,
    /// This many connections were still open at the deadline and were cut.
    Cut(usize),
}

/// A running server. Dropping the handle stops accepting; open connections continue until they end by
/// themselves.
pub(crate) struct ServerHandle {
    local_addr: SocketAddr,
    registry: Arc<Registry>,
    #[cfg(test)]
    slots: Arc<Slots>,
    #[cfg(test)]
    metrics: PortMetrics,
    stop: watch::Sender<bool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the accept loop.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn serve(self, listener: Listener) -> ServerHandle {
        let local_addr = listener.local_addr();
        let registry = Registry::new();
        let metrics = self.metrics;
        let (stop, stopped) = watch::channel(false);
        let slots = Slots::new(&self.limits);
        let shared = Arc::new(connection::Shared {
            handshakes: FairSemaphore::new(self.limits.concurrent_handshakes),
            bulk: BulkTurns::default(),
            protocols: connection::Protocols::new(&self.limits),
            tls: self.tls,
            limits: self.limits,
            handler: self.handler,
            metrics: metrics.clone(),
        });
        let accepting = tokio::spawn(accept_loop(
            listener,
            shared,
            Arc::clone(&slots),
            Arc::clone(&registry),
            stopped,
        ));
        ServerHandle {
            local_addr,
            registry,
            #[cfg(test)]
            slots,
            #[cfg(test)]
            metrics,
            stop,
            accepting: Some(accepting),
        }
    }
}

async fn accept_loop(
    listener: Listener,
    shared: Arc<connection::Shared>,
    slots: Arc<Slots>,
    registry: Arc<Registry>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut full_said = false;
    loop {
        // One future for both waits: a stop must be able to interrupt either.
        let next = async {
            slots.settled().await;
            listener.accept(&shared.limits).await
        };
        // Biased towards stopping, so that no connection is accepted only to be closed immediately.
        let (stream, remote) = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            next = next => next,
        };
        let activity = Activity::new();
        let is_local = (shared.limits.is_loopback)(remote.ip());
        let evicted = slots.evicted();
        let Some(slot) = slots.enter(remote.ip(), is_local, &activity) else {
            // Dropped, which closes it: an error in HTTP would need a TLS handshake, for which there is no
            // slot.
            shared.metrics.connection_refused();
            continue;
        };
        // Logged once: under a flood the metric counts, and the log must not flood too.
        if slots.evicted() > evicted && !std::mem::replace(&mut full_said, true) {
            tracing::warn!(
                %remote,
                connections = shared.limits.max_connections,
                "connection limit reached: new connections evict the longest idle ones (see --max-connections and \
                 --max-connections-per-address)"
            );
        }
        // Before the spawn, so that a drain which begins now waits for this connection.
        let entry = registry.enter(Arc::clone(&activity));
        let connection = connection::run(Connection {
            stream,
            remote,
            shared: Arc::clone(&shared),
            activity,
            guards: ConnectionGuards { slot, entry },
        });
        // In no task group: the registry is what waits for connections.
        tokio::spawn(connection.instrument(spans::connection(remote)));
    }
}

impl ServerHandle {
    /// The bound address, with the actual port if 0 was requested.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Number of failed TLS handshakes, for `apiserver_tls_handshake_errors_total`.
    #[cfg(test)]
    pub(crate) fn handshake_errors(&self) -> u64 {
        self.metrics.handshake_errors()
    }

    /// Number of connections that were accepted and have not ended.
    #[cfg(test)]
    pub(crate) fn open_connections(&self) -> usize {
        self.registry.len()
    }

    /// Number of connections evicted to make room for new ones.
    #[cfg(test)]
    pub(crate) fn evicted(&self) -> u64 {
        self.slots.evicted()
    }

    /// Number of new connections closed immediately because no other could be evicted for them.
    #[cfg(test)]
    pub(crate) fn refused(&self) -> u64 {
        self.metrics.refused()
    }

    /// Closes the listening socket; open connections continue.
    pub(crate) fn stop_accepting(&self) {
        self.stop.send_replace(true);
    }

    /// Stops accepting, closes idle connections, closes the others after their requests in flight, new ones
    /// after their first request (see [`Limits::first_request`]), and cuts those still open after `limit`.
    /// Does not wait for upgraded connections; like watches they are ended by their own shutdown signals.
    ///
    /// # Cancel safety
    /// Not cancel safe: connections that were already signalled still close, but nothing cuts the rest.
    pub(crate) async fn drain(mut self, limit: Duration) -> Drained {
        self.stop_accepting();
        // Until the accept loop has ended, a new connection could miss the signal below.
        if let Some(accepting) = self.accepting.take()
            && let Err(error) = accepting.await
        {
            tracing::error!(%error, "the accept loop failed");
        }
        self.registry.signal(signals::DRAIN);
        if self.registry.wait_empty(limit).await {
            return Drained::Clean;
        }
        let left = self.registry.len();
        // Cut connections end when their task runs next; one that blocks its thread is not waited for.
        self.registry.signal(signals::KILL);
        self.registry.wait_empty(Duration::from_secs(1)).await;
        Drained::Cut(left)
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop_accepting();
    }
}
