//! Test support: generated certificates, servers on ephemeral ports, and a small client.

use crate::pki::certs::{CaPool, DynamicCa, DynamicKeyPair, KeyPairData};
use crate::request::{Body, Handler, Request as Asked, Response as Answer};
use crate::serving::*;
use crate::telemetry::Telemetry;
use async_trait::async_trait;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2 as h2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) type Tls = TlsStream<TcpStream>;
pub(crate) type Sender = h2::SendRequest<Empty<bytes::Bytes>>;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub(crate) struct Pair {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Pair {
    pub(crate) fn self_signed(subject: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, subject);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            cert_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    pub(crate) fn data(&self) -> KeyPairData {
        KeyPairData::from_pem(self.cert_pem.clone(), self.key_pem.clone(), &provider()).unwrap()
    }

    pub(crate) fn dynamic(&self) -> Arc<DynamicKeyPair> {
        DynamicKeyPair::fixed(self.data(), provider())
    }
}

pub(crate) struct Fixture {
    server: Pair,
    pub client: Pair,
}

pub(crate) struct Running {
    pub handle: ServerHandle,
    pub tls: Arc<TlsConfig>,
}

impl Running {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            server: Pair::self_signed("localhost"),
            client: Pair::self_signed("client"),
        }
    }

    fn start(
        &self,
        pair: Arc<DynamicKeyPair>,
        sni: Vec<SniKeyPair>,
        limits: Limits,
        handler: Arc<dyn Handler>,
    ) -> Running {
        let ca = DynamicCa::fixed(CaPool::from_pem(self.client.cert_pem.clone()).unwrap());
        let tls = TlsConfig::try_new(pair, sni, vec![ca], TlsOptions::default(), provider()).unwrap();
        let listener = listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let server = Server {
            tls: Arc::clone(&tls),
            limits,
            handler,
            metrics: Telemetry::new().port.clone(),
        };
        Running {
            handle: server.serve(listener),
            tls,
        }
    }

    pub(crate) fn serve(&self, limits: Limits, handler: Arc<dyn Handler>) -> Running {
        self.start(self.server.dynamic(), vec![], limits, handler)
    }

    pub(crate) fn serve_pair(&self, pair: Arc<DynamicKeyPair>) -> Running {
        let handler = answer_with(|_| Response::new(Body::empty()));
        self.start(pair, vec![], Limits::default(), handler)
    }

    pub(crate) fn serve_sni(&self, sni: Vec<SniKeyPair>) -> Running {
        let handler = answer_with(|_| Response::new(Body::empty()));
        self.start(self.server.dynamic(), sni, Limits::default(), handler)
    }

    pub(crate) fn client_config(&self, alpn: &[&str], client: Option<&Pair>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustAll));
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(pair) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        config
    }

    /// A configuration for these versions of TLS, without a client certificate.
    pub(crate) fn client_config_over(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> ClientConfig {
        ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustAll))
            .with_no_client_auth()
    }

    pub(crate) async fn connect(
        &self,
        server: &Running,
        name: &str,
        alpn: &[&str],
        client: Option<&Pair>,
    ) -> std::io::Result<Tls> {
        self.connect_with(server, name, Arc::new(self.client_config(alpn, client)))
            .await
    }

    /// Like [`connect`](Self::connect), but from another address of this machine, which stands for a remote
    /// one.
    pub(crate) async fn connect_from(
        &self,
        source: [u8; 4],
        server: &Running,
        alpn: &[&str],
        client: Option<&Pair>,
    ) -> std::io::Result<Tls> {
        let tcp = tcp_from(source, server).await?;
        TlsConnector::from(Arc::new(self.client_config(alpn, client)))
            .connect(ServerName::try_from("localhost").unwrap(), tcp)
            .await
    }

    pub(crate) async fn connect_with(
        &self,
        server: &Running,
        name: &str,
        config: Arc<ClientConfig>,
    ) -> std::io::Result<Tls> {
        let tcp = TcpStream::connect(server.addr()).await?;
        handshake(tcp, name, config).await
    }
}

pub(crate) async fn handshake(
    tcp: TcpStream,
    name: &str,
    config: impl Into<Arc<ClientConfig>>,
) -> std::io::Result<Tls> {
    TlsConnector::from(config.into())
        .connect(ServerName::try_from(name.to_owned()).unwrap(), tcp)
        .await
}

pub(crate) async fn tcp_from(source: [u8; 4], server: &Running) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(server.addr()).await
}

pub(crate) fn switching_protocols() -> Answer {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "echo")
        .body(Body::empty())
        .unwrap()
}

/// Accepts any server certificate; the tests inspect certificates themselves.
#[derive(Debug)]
struct TrustAll;

impl rustls::client::danger::ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

struct FnHandler<F>(F);

#[async_trait]
impl<F: Fn(Asked) -> Answer + Send + Sync + 'static> Handler for FnHandler<F> {
    async fn handle(&self, req: Asked) -> Answer {
        (self.0)(req)
    }
}

pub(crate) fn answer_with(f: impl Fn(Asked) -> Answer + Send + Sync + 'static) -> Arc<dyn Handler> {
    Arc::new(FnHandler(f))
}

struct Later(Duration);

#[async_trait]
impl Handler for Later {
    async fn handle(&self, _: Asked) -> Answer {
        tokio::time::sleep(self.0).await;
        Response::new(Body::full("late"))
    }
}

pub(crate) fn answer_later(after: Duration) -> Arc<dyn Handler> {
    Arc::new(Later(after))
}

#[derive(Clone)]
pub(crate) struct Gate(Arc<Doors>);

struct Doors {
    entered: watch::Sender<usize>,
    waiting: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

struct Waiting<'a>(&'a Doors);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|n| *n -= 1);
    }
}

impl Gate {
    pub(crate) async fn entered(&self, n: usize) {
        self.0
            .entered
            .subscribe()
            .wait_for(|entered| *entered >= n)
            .await
            .unwrap();
    }

    pub(crate) fn open(&self) {
        self.0.open.send_replace(true);
    }

    pub(crate) fn waiting(&self) -> usize {
        *self.0.waiting.borrow()
    }

    pub(crate) async fn none_waiting(&self) {
        self.0.waiting.subscribe().wait_for(|n| *n == 0).await.unwrap();
    }
}

#[async_trait]
impl Handler for Gate {
    async fn handle(&self, _: Asked) -> Answer {
        // Before `entered`, so that whoever has seen that can check `waiting` at once.
        self.0.waiting.send_modify(|n| *n += 1);
        let _waiting = Waiting(&self.0);
        self.0.entered.send_modify(|n| *n += 1);
        self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
        Response::new(Body::full("through"))
    }
}

/// A handler whose requests wait until the gate opens.
pub(crate) fn answer_at_gate() -> (Arc<dyn Handler>, Gate) {
    let gate = Gate(Arc::new(Doors {
        entered: watch::Sender::new(0),
        waiting: watch::Sender::new(0),
        open: watch::Sender::new(false),
    }));
    (Arc::new(gate.clone()), gate)
}

pub(crate) fn request(path: &str) -> Request<Empty<bytes::Bytes>> {
    Request::get(format!("https://localhost{path}"))
        .body(Empty::new())
        .unwrap()
}

pub(crate) async fn http2(tls: Tls) -> (Sender, tokio::task::JoinHandle<hyper::Result<()>>) {
    let (sender, connection) = h2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.unwrap();
    (sender, tokio::spawn(connection))
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Aborts a connection's task when its request is over.
struct Owned(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends one GET over the protocol that ALPN selected.
pub(crate) async fn get(tls: Tls, path: &str) -> (http::StatusCode, String) {
    if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
        let (mut sender, connection) = http2(tls).await;
        let _owned = Owned(connection);
        let response = sender.send_request(request(path)).await.unwrap();
        return (response.status(), text(response).await);
    }
    let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
    let _owned = Owned(tokio::spawn(connection));
    let request = Request::get(path)
        .header("host", "localhost")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    (response.status(), text(response).await)
}

pub(crate) async fn get_kind(tls: Tls, path: &str) -> (Option<rustls::HandshakeKind>, String) {
    let kind = tls.get_ref().1.handshake_kind();
    (kind, get(tls, path).await.1)
}

pub(crate) fn server_subject(tls: &Tls) -> String {
    let certificates = tls.get_ref().1.peer_certificates().unwrap();
    let (_, certificate) = x509_parser::parse_x509_certificate(&certificates[0]).unwrap();
    certificate
        .subject()
        .iter_common_name()
        .next()
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

/// Reads to the end of the stream, clean or not. False after 60 s.
pub(crate) async fn is_closed(io: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut sink = [0; 1024];
    let end = async {
        loop {
            match io.read(&mut sink).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), end).await.is_ok()
}
