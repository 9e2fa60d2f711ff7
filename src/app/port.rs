//! The serving port: generates or loads and watches certificates, binds the socket, and writes the
//! administrator's kubeconfig. [`Port::bind`] starts with what takes longest, [`Bound::prepare`] does the
//! rest; [`Port::open`] then attaches the handler.

use super::Error;
use crate::cli::CompletedOptions;
use crate::pki::certs::{DynamicCa, DynamicKeyPair, Reload, watch_files};
use crate::pki::{self, Credentials, Kubeconfig, Pki, PkiError, PkiOptions};
use crate::request::Handler;
use crate::serving::{Listener, Server, ServerHandle, SniKeyPair, TlsConfig, listener};
use crate::telemetry::port::PortMetrics;
use rustls::crypto::CryptoProvider;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Interval at which certificate files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which generated certificates are checked for expiry; short against the 30 days before it in
/// which they are reissued.
const RENEW_INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// A bound port whose keys and certificates are being made.
pub(crate) struct Bound {
    listener: Listener,
    pki: JoinHandle<Result<Pki, PkiError>>,
}

/// A bound port that does not accept connections yet, and the certificates that other modules need.
pub(crate) struct Port {
    /// CAs of client certificates; for the authenticator and for `client-ca-file` in the published ConfigMap.
    pub client_ca: Arc<DynamicCa>,
    /// CAs of front proxies.
    pub request_header_ca: Arc<DynamicCa>,
    /// Client certificate presented to backends.
    pub proxy_client: Arc<DynamicKeyPair>,
    /// CAs with which clients verify this server; `None` if the serving certificate was not issued by the
    /// gateway.
    pub serving_ca: Option<Arc<DynamicCa>>,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    tls: Arc<TlsConfig>,
    listener: Listener,
    limits: crate::serving::Limits,
    tasks: Tasks,
    /// The outcome of writing the kubeconfig.
    written: oneshot::Receiver<Result<(), Error>>,
}

/// A port that accepts connections. Dropping it ends the tasks that watch its certificates.
pub(crate) struct OpenPort {
    /// Handle of the running server.
    pub server: ServerHandle,
    _tasks: Tasks,
}

struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        // Aborting is safe: a file is replaced as a whole, on a thread of its own that finishes.
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Reissues generated certificates before they expire. The file watch then picks them up.
async fn renew(mut options: PkiOptions) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        options.now = SystemTime::now();
        let now = options.clone();
        match tokio::task::spawn_blocking(move || pki::ensure(&now)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "generated certificates cannot be kept valid"),
            Err(error) => tracing::error!(%error, "certificate renewal failed"),
        }
    }
}

impl Port {
    /// Binds, and starts to make missing keys and certificates on a thread of the blocking pool, because
    /// waiting for the disk takes as long as opening the store. The data directory must belong to this
    /// process alone.
    ///
    /// # Errors
    /// The port is taken.
    pub(crate) fn bind(options: &CompletedOptions, sockets: Vec<TcpListener>) -> Result<Bound, Error> {
        // Bind first, so that a second server on the same machine fails before it touches any file.
        let listener = match sockets.is_empty() {
            true => listener::bind(options.bind, options.serving.share_port).map_err(Error::other)?,
            false => Listener::adopt(sockets).map_err(Error::during("an inherited socket cannot be used"))?,
        };
        let wanted = options.pki_options();
        let pki = tokio::task::spawn_blocking(move || pki::ensure(&wanted));
        Ok(Bound { listener, pki })
    }
}

impl Bound {
    /// Prepares the port.
    ///
    /// # Errors
    /// A file cannot be read or written, or a certificate cannot be used.
    pub(crate) async fn prepare(
        self,
        options: &CompletedOptions,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Port, Error> {
        let Self { listener, pki } = self;
        let pki = pki.await.map_err(Error::other)?.map_err(Error::other)?;
        if !pki.written.is_empty() {
            tracing::info!(files = ?pki.written, "generated keys and certificates");
        }
        // All sources are watched, generated ones too: `renew` only writes files.
        let mut watched: Vec<Arc<dyn Reload>> = Vec::new();
        let mut pair = |flag, files: Option<(PathBuf, PathBuf)>, made: (PathBuf, PathBuf)| {
            let (cert, key) = files.unwrap_or(made);
            let pair = DynamicKeyPair::from_files(cert, key, Arc::clone(provider)).map_err(Error::flag(flag))?;
            watched.push(Arc::clone(&pair) as Arc<dyn Reload>);
            Ok::<_, Error>(pair)
        };
        let serving_flag = match pki.serving_is_ours {
            true => "tls-cert-file",
            false => "cert-dir",
        };
        // Presented where no name of --tls-sni-cert-key matches.
        let default = pair(serving_flag, options.serving.pair.clone(), pki.apiserver())?;
        let proxy_client = pair(
            "proxy-client-cert-file",
            options.aggregator.proxy_client.clone(),
            pki.front_proxy_client(),
        )?;
        let admin = pair("data-dir", None, pki.admin())?;
        let mut sni = Vec::new();
        for files in &options.serving.sni {
            sni.push(SniKeyPair {
                names: files.names.clone(),
                pair: pair("tls-sni-cert-key", None, (files.cert.clone(), files.key.clone()))?,
            });
        }
        let mut ca = |flag, file: &Option<PathBuf>, made: PathBuf| {
            let ca = DynamicCa::from_file(file.as_ref().unwrap_or(&made)).map_err(Error::flag(flag))?;
            watched.push(Arc::clone(&ca) as Arc<dyn Reload>);
            Ok::<_, Error>(ca)
        };
        let authentication = &options.authentication;
        let client_ca = ca("client-ca-file", &authentication.client_ca, pki.client_ca())?;
        let request_header_ca = ca(
            "requestheader-client-ca-file",
            &authentication.request_header.client_ca,
            pki.front_proxy_ca(),
        )?;
        // Both: the handshake cannot tell clients from front proxies, the authenticators do.
        let client_cas = vec![Arc::clone(&client_ca), Arc::clone(&request_header_ca)];
        let tls = TlsConfig::try_new(
            Arc::clone(&default),
            sni,
            client_cas,
            options.serving.tls.clone(),
            Arc::clone(provider),
        )
        .map_err(Error::other)?;
        let serving_ca = match options.serving.pair.is_none() && pki.serving_is_ours {
            true => Some(ca("data-dir", &None, pki.ca())?),
            false => None,
        };
        let administrator = Arc::new(Administrator {
            file: options.kubeconfig_path(),
            server: options.local_url(listener.local_addr().port()),
            serving: Arc::clone(&default),
            serving_ca: serving_ca.clone(),
            client: admin,
            pair: pki.admin(),
        });
        let (tell, written) = oneshot::channel();
        let tasks = Tasks(vec![
            tokio::spawn(Arc::clone(&tls).follow()),
            tokio::spawn(watch_files(watched, CHECK_INTERVAL)),
            tokio::spawn(renew(options.pki_options())),
            tokio::spawn(Arc::clone(&administrator).keep(tell)),
        ]);
        Ok(Port {
            client_ca,
            request_header_ca,
            proxy_client,
            serving_ca,
            kubeconfig: administrator.file.clone(),
            tls,
            listener,
            limits: options.limits.clone(),
            tasks,
            written,
        })
    }
}

impl Port {
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Starts serving with `handler`.
    ///
    /// # Errors
    /// The administrator's kubeconfig cannot be written.
    pub(crate) async fn open(self, handler: Arc<dyn Handler>, metrics: PortMetrics) -> Result<OpenPort, Error> {
        // The disk was written to while the rest of the gateway was composed; normally there is nothing left
        // to wait for.
        self.written.await.map_err(Error::other)??;
        let server = Server {
            tls: self.tls,
            limits: self.limits,
            handler,
            metrics,
        };
        Ok(OpenPort {
            server: server.serve(self.listener),
            _tasks: self.tasks,
        })
    }
}

/// The administrator's kubeconfig. For a serving certificate that somebody else issued, its own chain is the
/// CA data, because its issuer is not known.
struct Administrator {
    file: PathBuf,
    server: String,
    serving: Arc<DynamicKeyPair>,
    serving_ca: Option<Arc<DynamicCa>>,
    client: Arc<DynamicKeyPair>,
    /// The files of `client`.
    pair: (PathBuf, PathBuf),
}

impl Administrator {
    fn write(&self) -> Result<(), Error> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|e| Error::other(format!("{}: cannot be read: {e}", path.display())))
        };
        let ca = match &self.serving_ca {
            Some(ca) => ca.current().pem.to_vec(),
            None => self.serving.current().cert_pem.to_vec(),
        };
        let (certificate, key) = &self.pair;
        let kubeconfig = Kubeconfig {
            server: &self.server,
            certificate_authority: &ca,
            user: "kubernetes-admin",
            credentials: Credentials::Certificate {
                certificate: &read(certificate)?,
                key: &read(key)?,
            },
        };
        pki::write_kubeconfig(&self.file, &kubeconfig).map_err(Error::other)
    }

    /// Writes the file and reports the outcome. Writes it again whenever its client certificate was reissued, or
    /// other gateways share CAs: behind one address, any of them may answer.
    async fn keep(self: Arc<Self>, tell: oneshot::Sender<Result<(), Error>>) {
        // Subscribed before the first write, so that a change during it is not missed.
        let mut client = self.client.subscribe();
        let mut authority = match &self.serving_ca {
            Some(ca) => ca.subscribe(),
            None => self.serving.subscribe(),
        };
        // The receiver is gone if the start has failed meanwhile.
        let _ = tell.send(self.write_aside().await);
        loop {
            // The order does not matter: the whole file is written again.
            let changed = tokio::select! {
                changed = client.changed() => changed,
                changed = authority.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            if let Err(error) = self.write_aside().await {
                tracing::error!(%error, "the administrator's kubeconfig cannot be updated");
            }
        }
    }

    /// Writes the file on a thread of the blocking pool.
    async fn write_aside(self: &Arc<Self>) -> Result<(), Error> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.write())
            .await
            .map_err(Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command};

    fn serve(flags: &[&str]) -> CompletedOptions {
        let args = ["torana", "serve"].iter().chain(flags).map(std::ffi::OsString::from);
        match cli::parse(args) {
            Ok(Command::Serve(options)) => options.complete().unwrap(),
            _ => panic!("these are flags of serve"),
        }
    }

    #[tokio::test]
    async fn the_kubeconfig_follows_the_reissued_client_certificate() {
        let tmp = tempfile::tempdir().unwrap();
        let options = serve(&[&format!("--data-dir={}", tmp.path().join("data").display())]);
        let pki = pki::ensure(&options.pki_options()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let pair = |(cert, key): (PathBuf, PathBuf)| DynamicKeyPair::from_files(cert, key, provider.clone()).unwrap();
        let administrator = Arc::new(Administrator {
            file: tmp.path().join("admin.kubeconfig"),
            server: "https://127.0.0.1:1".to_owned(),
            serving: pair(pki.apiserver()),
            serving_ca: None,
            client: pair(pki.admin()),
            pair: pki.admin(),
        });
        let (tell, written) = oneshot::channel();
        let kept = tokio::spawn(Arc::clone(&administrator).keep(tell));
        written.await.unwrap().unwrap();
        let before = std::fs::read(&administrator.file).unwrap();
        std::fs::remove_file(&administrator.pair.0).unwrap();
        std::fs::remove_file(&administrator.pair.1).unwrap();
        pki::ensure(&options.pki_options()).unwrap();
        assert!(administrator.client.check_now());
        while std::fs::read(&administrator.file).unwrap() == before {
            tokio::task::yield_now().await;
        }
        kept.abort();
    }

    #[tokio::test]
    async fn a_port_is_prepared_in_an_empty_data_directory() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = format!("--data-dir={}", tmp.path().join("data").display());
        let options = serve(&["--secure-port=0", "--bind-address=127.0.0.1", &dir]);
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let bound = Port::bind(&options, Vec::new()).unwrap();
        let mut port = bound.prepare(&options, &provider).await.unwrap();
        (&mut port.written).await.unwrap().unwrap();
        let text = std::fs::read_to_string(&port.kubeconfig).unwrap();
        let server = format!("server: https://{}\n", port.local_addr());
        assert!(text.contains(&server), "{text}");
        assert_eq!(port.client_ca.current().roots.len(), 1);

        let taken = format!("--secure-port={}", port.local_addr().port());
        let options = serve(&[&taken, "--bind-address=127.0.0.1", &dir]);
        let Err(error) = Port::bind(&options, Vec::new()) else {
            panic!("bound twice")
        };
        let text = error.to_string();
        assert!(text.contains("taken") && text.contains("--secure-port"), "{text}");
    }
}
