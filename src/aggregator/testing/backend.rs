//! TLS servers on 127.0.0.1 and certificates for them. Entry points: [`Pki::new`], [`Backend::http`],
//! [`raw_backend`].

use super::provider;
use crate::request::Body;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

type Stream = TlsStream<TcpStream>;

/// A CA and a serving configuration with a certificate issued by it.
pub(crate) struct Pki {
    pub ca_pem: String,
    pub config: Arc<rustls::ServerConfig>,
}

impl Pki {
    /// Issues a serving certificate for these names from a new CA.
    pub(crate) fn new(names: &[&str], alpn: &[&[u8]]) -> Self {
        let (issuer, key, cert) = issued(names, ExtendedKeyUsagePurpose::ServerAuth);
        Self {
            ca_pem: issuer.pem(),
            config: config(cert.der().clone(), &key, alpn),
        }
    }

    /// Like [`Pki::new`], but requires client certificates issued by the CA `clients`.
    pub(crate) fn asking(names: &[&str], alpn: &[&[u8]], clients: &str) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(clients.as_bytes()) {
            roots.add(ca.unwrap()).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let (issuer, key, cert) = issued(names, ExtendedKeyUsagePurpose::ServerAuth);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.unwrap())
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        Self {
            ca_pem: issuer.pem(),
            config: Arc::new(config),
        }
    }

    /// A self-signed serving certificate marked as a CA, which is also the CA bundle.
    pub(crate) fn own_ca(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        Self {
            ca_pem: cert.pem(),
            config: config(cert.der().clone(), &key, &[b"h2"]),
        }
    }
}

/// A new CA, and a certificate issued by it with its key.
fn issued(
    names: &[&str],
    usage: ExtendedKeyUsagePurpose,
) -> (CertifiedIssuer<'static, KeyPair>, KeyPair, rcgen::Certificate) {
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "test-ca");
    let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let mut leaf = CertificateParams::new(names).unwrap();
    leaf.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let cert = leaf.signed_by(&key, &issuer).unwrap();
    (issuer, key, cert)
}

/// PEM of a new CA, of a client certificate issued by it, and of the certificate's key.
pub(crate) fn client_pair() -> [String; 3] {
    let (issuer, key, cert) = issued(&["client"], ExtendedKeyUsagePurpose::ClientAuth);
    [issuer.pem(), cert.pem(), key.serialize_pem()]
}

fn config(cert: CertificateDer<'static>, key: &KeyPair, alpn: &[&[u8]]) -> Arc<rustls::ServerConfig> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut c = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .unwrap();
    c.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    Arc::new(c)
}

/// A port that nobody else is given while no backend listens there.
pub(crate) struct ReservedPort(TcpSocket);

impl ReservedPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // So that backends can listen beside it, one after the other.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn number(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }
}

/// A running backend, stopped on drop.
pub(crate) struct Backend {
    pub authority: String,
    pub connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.authority.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Serves HTTP by the negotiated protocol, with at most `streams` concurrent HTTP/2 streams.
    pub(crate) async fn http<F, R>(pki: &Pki, streams: u32, service: F) -> Self
    where
        F: Fn(http::Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = http::Response<Body>> + Send + 'static,
    {
        Self::http_at(0, pki, streams, service).await
    }

    /// Like [`Backend::http`], on a [`ReservedPort`].
    pub(crate) async fn http_at<F, R>(port: u16, pki: &Pki, streams: u32, service: F) -> Self
    where
        F: Fn(http::Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = http::Response<Body>> + Send + 'static,
    {
        raw_backend_at(port, pki, move |stream| {
            let service = service.clone();
            async move {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = service_fn(move |r| {
                    let response = service(r);
                    async move { Ok::<_, std::convert::Infallible>(response.await) }
                });
                let io = TokioIo::new(stream);
                if http2 {
                    let mut b = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = b.max_concurrent_streams(streams).serve_connection(io, service).await;
                } else {
                    let b = hyper::server::conn::http1::Builder::new();
                    let _ = b.serve_connection(io, service).with_upgrades().await;
                }
            }
        })
        .await
    }
}

/// Passes each TLS connection to `serve`.
pub(crate) async fn raw_backend<F, R>(pki: &Pki, serve: F) -> Backend
where
    F: Fn(Stream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    raw_backend_at(0, pki, serve).await
}

async fn raw_backend_at<F, R>(port: u16, pki: &Pki, serve: F) -> Backend
where
    F: Fn(Stream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(pki.config.clone());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let task = tokio::spawn(async move {
        let mut set = tokio::task::JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            // Nagle would delay small writes until acknowledgements, which take real time
            // even if the test's clock is paused.
            tcp.set_nodelay(true).unwrap();
            if let Ok(stream) = acceptor.accept(tcp).await {
                count.fetch_add(1, Ordering::Relaxed);
                set.spawn(serve(stream));
            }
        }
    });
    Backend {
        authority,
        connections,
        task,
    }
}

pub(crate) fn response(status: u16, body: impl Into<Bytes>) -> http::Response<Body> {
    http::Response::builder().status(status).body(Body::full(body)).unwrap()
}
