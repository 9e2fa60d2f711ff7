//! A small HTTP/2 load client: connections × streams, one request at a time per stream.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Accepts any certificate: the benchmark only measures, tests cover verification.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        m: &[u8],
        c: &rustls::pki_types::CertificateDer<'_>,
        d: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(m, c, d, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        m: &[u8],
        c: &rustls::pki_types::CertificateDer<'_>,
        d: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(m, c, d, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A target and how to reach it.
#[derive(Clone)]
pub struct Target {
    pub port: u16,
    pub token: String,
    /// The content type of request bodies.
    pub content_type: &'static str,
    /// Additional headers of every request.
    pub headers: Vec<(&'static str, String)>,
    tls: Arc<rustls::ClientConfig>,
}

pub type Sender = SendRequest<Full<Bytes>>;

impl Target {
    pub fn new(port: u16, token: &str) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Self {
            port,
            token: token.to_owned(),
            content_type: "application/json",
            headers: vec![],
            tls: Arc::new(tls),
        }
    }

    /// Opens a TLS connection that negotiates HTTP/2.
    pub async fn tls(&self) -> Result<TlsStream<TcpStream>, String> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port))
            .await
            .map_err(|e| e.to_string())?;
        tcp.set_nodelay(true).map_err(|e| e.to_string())?;
        let name = ServerName::try_from("localhost").expect("a valid name");
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        connector.connect(name, tcp).await.map_err(|e| e.to_string())
    }

    pub async fn connect(&self) -> Result<Sender, String> {
        let tls = self.tls().await?;
        let (sender, conn) = http2::Builder::new(TokioExecutor::new())
            // Large windows, so that flow control of the client does not limit the server under test.
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .handshake(TokioIo::new(tls))
            .await
            .map_err(|e| e.to_string())?;
        tokio::spawn(conn);
        Ok(sender)
    }

    pub fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut b = Request::builder()
            .method(method)
            .uri(format!("https://localhost:{}{path}", self.port));
        if !self.token.is_empty() {
            b = b.header("authorization", format!("Bearer {}", self.token));
        }
        if !body.is_empty() {
            b = b.header("content-type", self.content_type);
        }
        for (name, value) in &self.headers {
            b = b.header(*name, value);
        }
        b.header("user-agent", "torana-bench")
            .body(Full::new(body))
            .expect("method, uri and headers are valid")
    }

    /// Sends one request; returns the status and the body.
    pub async fn once(&self, method: Method, path: &str, body: &str) -> Result<(StatusCode, Bytes), String> {
        let mut sender = self.connect().await?;
        exchange(
            &mut sender,
            self.request(method, path, Bytes::copy_from_slice(body.as_bytes())),
        )
        .await
    }
}

pub async fn exchange(sender: &mut Sender, req: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    sender.ready().await.map_err(explained)?;
    let resp = sender.send_request(req).await.map_err(explained)?;
    let status = resp.status();
    let body = resp.into_body().collect().await.map_err(explained)?.to_bytes();
    Ok((status, body))
}

/// An error with its causes: the outermost message only reports that HTTP/2 failed.
pub fn explained(error: hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}

/// The results of a load run.
#[derive(Debug, Default)]
pub struct Load {
    pub requests: u64,
    pub failures: u64,
    pub seconds: f64,
    pub mean_us: f64,
    pub p99_us: f64,
    /// The time of each request in µs, sorted.
    pub times: Vec<u32>,
}

/// Runs `connections` × `streams` workers for `time`, or until `total` requests were sent (0: no limit).
pub async fn load<F>(
    target: &Target,
    connections: usize,
    streams: usize,
    time: Duration,
    total: u64,
    make: F,
) -> Result<Load, String>
where
    F: Fn(u64) -> (Method, String, Bytes) + Send + Sync + 'static,
{
    let make = Arc::new(make);
    let stop = Arc::new(AtomicBool::new(false));
    let counter = Arc::new(AtomicU64::new(0));
    let failures = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    let mut senders = Vec::new();
    // Connect before the clock starts: handshakes are not part of the load.
    for _ in 0..connections {
        senders.push(target.connect().await?);
    }
    let start = Instant::now();
    for sender in senders {
        for _ in 0..streams {
            let (mut sender, target) = (sender.clone(), target.clone());
            let (make, stop, counter, failures) = (make.clone(), stop.clone(), counter.clone(), failures.clone());
            workers.push(tokio::spawn(async move {
                let mut times: Vec<u32> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let n = counter.fetch_add(1, Ordering::Relaxed);
                    if total > 0 && n >= total {
                        break;
                    }
                    let (method, path, body) = make(n);
                    let t = Instant::now();
                    match exchange(&mut sender, target.request(method, &path, body)).await {
                        // Only successes count: fast failures must not improve the latencies.
                        Ok((s, _)) if s.is_success() || s == StatusCode::NOT_MODIFIED => {
                            times.push(t.elapsed().as_micros() as u32)
                        }
                        Ok((s, b)) => {
                            if failures.fetch_add(1, Ordering::Relaxed) == 0 {
                                eprintln!("first failure: {s} {}", String::from_utf8_lossy(&b[..b.len().min(300)]));
                            }
                        }
                        Err(e) => {
                            if failures.fetch_add(1, Ordering::Relaxed) == 0 {
                                eprintln!("first failure: {e}");
                            }
                            break;
                        }
                    }
                }
                times
            }));
        }
    }
    if total == 0 {
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
    }
    let mut times = Vec::new();
    for w in workers {
        times.extend(w.await.map_err(|e| e.to_string())?);
    }
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let requests = times.len() as u64;
    let mean_us = times.iter().map(|t| f64::from(*t)).sum::<f64>() / requests.max(1) as f64;
    let p99_us = times.get(times.len() * 99 / 100).map_or(0.0, |t| f64::from(*t));
    Ok(Load {
        requests,
        failures: failures.load(Ordering::Relaxed),
        seconds,
        mean_us,
        p99_us,
        times,
    })
}
