//! The serving port: generates or loads and watches certificates, binds the socket, and writes the administrator's
//! kubeconfig. [`Port::prepare`] does all that; [`Port::open`] then attaches the handler.

use crate::cli::CompletedOptions;
use crate::pki::certs::{CertError, DynamicCa, DynamicKeyPair, Reload, watch_files};
use crate::pki::{self, Credentials, Kubeconfig, Pki, PkiOptions};
use crate::request::Handler;
use crate::serving::{Listener, Server, ServerHandle, SniKeyPair, TlsConfig, listener};
use crate::telemetry::port::PortMetrics;
use rustls::crypto::CryptoProvider;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;

/// Interval at which certificate files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which generated certificates are checked for expiry.
const RENEW_INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// A bound port that does not accept connections yet, and the certificates that other modules need.
pub struct Port {
    /// CAs of client certificates; for the authenticator and for `client-ca-file` in the published ConfigMap.
    pub client_ca: Arc<DynamicCa>,
    /// CAs of front proxies.
    pub request_header_ca: Arc<DynamicCa>,
    /// Client certificate presented to backends.
    pub proxy_client: Arc<DynamicKeyPair>,
    /// File with the CA of the serving certificate; `None` if that is given by flag.
    pub serving_ca: Option<PathBuf>,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    tls: Arc<TlsConfig>,
    listener: Listener,
    limits: crate::serving::Limits,
    tasks: Tasks,
}

/// A port that accepts connections. Dropping it ends the tasks that watch its certificates.
pub struct OpenPort {
    /// Handle of the running server.
    pub server: ServerHandle,
    _tasks: Tasks,
}

struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
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

fn about(flag: &str) -> impl Fn(CertError) -> String {
    move |error| format!("--{flag}: {error}")
}

fn text(error: impl Display) -> String {
    error.to_string()
}

impl Port {
    /// Prepares the port. Needs a tokio runtime; the data directory must belong to this process alone.
    ///
    /// # Errors
    /// A one-line message: the port is taken, a file cannot be read or written, a certificate cannot be used.
    pub fn prepare(options: &CompletedOptions, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        // Bind first, so that a second server on the same machine fails before it touches any file.
        let listener = listener::bind(options.bind, options.serving.share_port).map_err(text)?;
        let pki = pki::ensure(&options.pki_options()).map_err(text)?;
        let mut watched: Vec<Arc<dyn Reload>> = Vec::new();
        let mut pair = |flag, files: Option<(PathBuf, PathBuf)>, made: (PathBuf, PathBuf)| {
            let (cert, key) = files.unwrap_or(made);
            let pair = DynamicKeyPair::from_files(cert, key, Arc::clone(provider)).map_err(about(flag))?;
            watched.push(Arc::clone(&pair) as Arc<dyn Reload>);
            Ok::<_, String>(pair)
        };
        let default = pair("tls-cert-file", options.serving.pair.clone(), pki.apiserver())?;
        let proxy_client = pair(
            "proxy-client-cert-file",
            options.aggregator.proxy_client.clone(),
            pki.front_proxy_client(),
        )?;
        let mut sni = Vec::new();
        for files in &options.serving.sni {
            sni.push(SniKeyPair {
                names: files.names.clone(),
                pair: pair("tls-sni-cert-key", None, (files.cert.clone(), files.key.clone()))?,
            });
        }
        let mut ca = |flag, file: &Option<PathBuf>, made: PathBuf| {
            let ca = DynamicCa::from_file(file.as_ref().unwrap_or(&made)).map_err(about(flag))?;
            watched.push(Arc::clone(&ca) as Arc<dyn Reload>);
            Ok::<_, String>(ca)
        };
        let authentication = &options.authentication;
        let client_ca = ca("client-ca-file", &authentication.client_ca, pki.client_ca())?;
        let request_header_ca = ca(
            "requestheader-client-ca-file",
            &authentication.request_header.client_ca,
            pki.front_proxy_ca(),
        )?;
        let client_cas = vec![Arc::clone(&client_ca), Arc::clone(&request_header_ca)];
        let tls = TlsConfig::try_new(
            Arc::clone(&default),
            sni,
            client_cas,
            options.serving.tls.clone(),
            Arc::clone(provider),
        )
        .map_err(text)?;
        let kubeconfig = options.kubeconfig_path();
        write_kubeconfig(options, &pki, &default, &listener, &kubeconfig)?;
        let tasks = Tasks(vec![
            tokio::spawn(Arc::clone(&tls).follow()),
            tokio::spawn(watch_files(watched, CHECK_INTERVAL)),
            tokio::spawn(renew(options.pki_options())),
        ]);
        Ok(Self {
            client_ca,
            request_header_ca,
            proxy_client,
            serving_ca: options.serving.pair.is_none().then(|| pki.ca()),
            kubeconfig,
            tls,
            listener,
            limits: options.limits.clone(),
            tasks,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Starts serving with `handler`.
    pub fn open(self, handler: Arc<dyn Handler>, metrics: PortMetrics) -> OpenPort {
        let server = Server {
            tls: self.tls,
            limits: self.limits,
            handler,
            metrics,
        };
        OpenPort {
            server: server.serve(self.listener),
            _tasks: self.tasks,
        }
    }
}

/// Writes the administrator's kubeconfig. For a serving certificate given by flag its own chain is the CA data, because
/// its issuer is not known.
fn write_kubeconfig(
    options: &CompletedOptions,
    pki: &Pki,
    serving: &DynamicKeyPair,
    listener: &Listener,
    path: &Path,
) -> Result<(), String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: cannot be read: {e}", path.display()));
    let (cert, key) = pki.admin();
    let ca = match options.serving.pair {
        None => read(&pki.ca())?,
        Some(_) => serving.current().cert_pem.to_vec(),
    };
    let kubeconfig = Kubeconfig {
        server: &options.local_url(listener.local_addr().port()),
        certificate_authority: &ca,
        user: "kubernetes-admin",
        credentials: Credentials::Certificate {
            certificate: &read(&cert)?,
            key: &read(&key)?,
        },
    };
    pki::write_kubeconfig(path, &kubeconfig).map_err(text)
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
    async fn a_port_is_prepared_in_an_empty_data_directory() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = format!("--data-dir={}", tmp.path().join("data").display());
        let options = serve(&["--secure-port=0", "--bind-address=127.0.0.1", &dir]);
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let port = Port::prepare(&options, &provider).unwrap();
        let text = std::fs::read_to_string(&port.kubeconfig).unwrap();
        let server = format!("server: https://{}\n", port.local_addr());
        assert!(text.contains(&server), "{text}");
        assert_eq!(port.client_ca.current().roots.len(), 1);

        let taken = format!("--secure-port={}", port.local_addr().port());
        let options = serve(&[&taken, "--bind-address=127.0.0.1", &dir]);
        let Err(text) = Port::prepare(&options, &provider) else {
            panic!("bound twice")
        };
        assert!(text.contains("taken") && text.contains("--secure-port"), "{text}");
    }
}
