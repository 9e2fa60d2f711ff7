//! [`Port`]: a TLS port for an [`ApiServer`], and [`Running`], the server that is open on it. The handler
//! chain is built by [`ApiServer`]; here it gets connections, certificates and a shutdown.

use super::ApiServer;
use super::Error;
use crate::pki::ServingPair;
use crate::pki::certs::{DynamicCa, DynamicKeyPair, Reload, watch_files};
use crate::server::Lifecycle;
use crate::server::lifecycle::{PreShutdownHook, ShutdownTimeouts};
use crate::serving::{Limits, Listener, Server, ServerHandle, TlsConfig, TlsOptions, listener};
use crate::storage::embedded::Engine;
use crate::tasks::TaskGroup;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval at which certificate files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time to wait for requests in flight during the shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// A bound port with its certificate.
pub struct Port {
    listener: Listener,
    tls: Arc<TlsConfig>,
    pair: Arc<DynamicKeyPair>,
    client_cas: Vec<Arc<DynamicCa>>,
}

impl Port {
    /// Binds the address; port 0 picks a free one. Clients are asked for certificates issued by `client_cas`, which an
    /// [`Authenticator`](super::authn::Authenticator) verifies. Once the server is open, files of certificates and CAs
    /// that change are read again.
    ///
    /// # Errors
    /// The port is taken, the certificate cannot be used.
    pub fn bind(address: SocketAddr, pair: &ServingPair, client_cas: Vec<Arc<DynamicCa>>) -> Result<Self, Error> {
        // The embedding program's choice first: it may need a validated provider.
        let provider = rustls::crypto::CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        // Before the certificate is read: a second instance fails before it does anything.
        let listener = listener::bind(address, false).map_err(|e| Error::Bind(e.into()))?;
        let pair = DynamicKeyPair::from_files(&pair.cert, &pair.key, provider.clone());
        let pair = pair.map_err(|e| Error::Certificate(e.into()))?;
        let cas = client_cas.clone();
        let tls = TlsConfig::try_new(pair.clone(), Vec::new(), cas, TlsOptions::default(), provider);
        Ok(Self {
            listener,
            tls: tls.map_err(|e| Error::Certificate(e.into()))?,
            pair,
            client_cas,
        })
    }

    /// The address that the port is bound to. Its port number is the actual one if port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// What is read again when its files change.
    fn watched(&self) -> Vec<Arc<dyn Reload>> {
        let cas = self.client_cas.iter().map(|ca| ca.clone() as Arc<dyn Reload>);
        std::iter::once(self.pair.clone() as Arc<dyn Reload>)
            .chain(cas)
            .collect()
    }
}

/// An [`ApiServer`] that serves on a port, until it is shut down.
pub struct Running {
    handle: ServerHandle,
    rest: Rest,
}

/// What ends with a server besides its port.
struct Rest {
    lifecycle: Lifecycle,
    hooks: Vec<PreShutdownHook>,
    tasks: TaskGroup,
    engine: Arc<Engine>,
}

impl ApiServer {
    /// Starts serving on a port. Needs a tokio runtime.
    pub fn open(self, port: Port) -> Running {
        let Self {
            mut prepared,
            engine,
            tasks,
            ..
        } = self;
        let server = Server {
            tls: port.tls.clone(),
            limits: Limits::default(),
            handler: prepared.handler.clone(),
            metrics: prepared.telemetry.port.clone(),
        };
        let files = port.watched();
        // Before the hooks run, since their health checks must be reachable meanwhile.
        let handle = server.serve(port.listener);
        let stop = tasks.stop_signal().clone();
        tasks.spawn("certificates", async move {
            // Neither of the other two ends by itself, so the order does not matter.
            tokio::select! {
                () = stop.wait() => {}
                _ = port.tls.follow() => {}
                _ = watch_files(files, CHECK_INTERVAL) => {}
            }
        });
        // Nobody listens for failures, because none of the server's hooks can fail.
        let (report, _) = mpsc::channel(1);
        prepared.start_hooks(&tasks, &report);
        let rest = Rest {
            lifecycle: prepared.lifecycle,
            hooks: prepared.pre_shutdown_hooks,
            tasks,
            engine,
        };
        Running { handle, rest }
    }

    /// Shuts down a server that was never opened, and whose [`service`](Self::service) was called instead: requests
    /// finish, new ones are rejected, watches end, tasks stop, the store is flushed.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the store is closed without waiting for requests and tasks.
    pub async fn shut_down(self) {
        let rest = Rest {
            lifecycle: self.prepared.lifecycle,
            hooks: self.prepared.pre_shutdown_hooks,
            tasks: self.tasks,
            engine: self.engine,
        };
        rest.shut_down(None).await;
    }
}

impl Running {
    /// The address that the port is bound to. Its port number is the actual one if port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// Shuts down in order: `/readyz` fails, requests finish, watches end, the store is flushed.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, connections are cut, and the store is closed without
    /// waiting for them.
    pub async fn shut_down(self) {
        self.rest.shut_down(Some(self.handle)).await;
    }
}

impl Rest {
    async fn shut_down(self, port: Option<ServerHandle>) {
        let Self {
            lifecycle,
            hooks,
            tasks,
            engine,
        } = self;
        let times = ShutdownTimeouts {
            delay: Duration::ZERO,
            in_flight: GRACE,
        };
        let stop = || port.iter().for_each(ServerHandle::stop_accepting);
        lifecycle.shut_down(times, hooks, stop, || async {}).await;
        if let Some(port) = port {
            // Requests have had their time; what is left are idle connections and stragglers.
            port.drain(Duration::from_secs(2)).await;
        }
        // After the requests and before the store, both of which tasks may use.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
        if let Err(late) = tasks.shutdown(deadline).await {
            tracing::warn!("{late}");
        }
        // It waits for the disk, which must not block a reactor.
        if let Err(e) = tokio::task::spawn_blocking(move || engine.shutdown()).await {
            tracing::error!("closing the store failed: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::ensure_serving;
    use std::net::Ipv4Addr;
    use std::time::SystemTime;

    #[tokio::test]
    async fn changed_files_of_client_cas_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let pair = |name: &str| ensure_serving(&dir.path().join(name), &["localhost"], &[], SystemTime::now()).unwrap();
        let (first, second) = (pair("first"), pair("second"));
        let file = dir.path().join("clients.crt");
        std::fs::copy(&first.ca, &file).unwrap();
        let clients = DynamicCa::from_file(&file).unwrap();
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into(), &first, vec![clients.clone()]).unwrap();

        std::fs::copy(&second.ca, &file).unwrap();
        let changed = port.watched().iter().filter(|files| files.check_now()).count();
        assert_eq!(changed, 1);
        assert_eq!(clients.current().pem, std::fs::read(&second.ca).unwrap());
    }
}
