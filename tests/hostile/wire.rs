//! A blocking HTTP/1.1 client over TLS that sends exactly the given bytes.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A certificate, those above it, and its key.
pub(crate) struct PeerCertificate {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// The gateway's address, and how to verify it.
#[derive(Clone)]
pub(crate) struct Target {
    pub address: SocketAddr,
    roots: rustls::RootCertStore,
    http1: Arc<rustls::ClientConfig>,
    http2: Arc<rustls::ClientConfig>,
}

impl Target {
    pub(crate) fn new(port: u16, ca: &[u8]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.expect("a certificate")).expect("a CA");
        }
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            http1: config(b"http/1.1", &roots, None),
            http2: config(b"h2", &roots, None),
            roots,
        }
    }

    /// Opens a TCP connection from a loopback address, so that attackers and the prober have different
    /// addresses.
    pub(crate) fn tcp(&self, from: Ipv4Addr) -> io::Result<TcpStream> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&self.address.into(), Duration::from_secs(5))?;
        let tcp = TcpStream::from(socket);
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
        tcp.set_write_timeout(Some(Duration::from_secs(5)))?;
        Ok(tcp)
    }

    pub(crate) fn tls(&self, from: Ipv4Addr) -> io::Result<Tls> {
        over(self.tcp(from)?, &self.http1)
    }

    /// A connection for HTTP/1.1 with a client certificate.
    pub(crate) fn tls_as(&self, from: Ipv4Addr, certificate: &PeerCertificate) -> io::Result<Tls> {
        over(self.tcp(from)?, &config(b"http/1.1", &self.roots, Some(certificate)))
    }

    pub(crate) fn tls_http2(&self, from: Ipv4Addr) -> io::Result<Tls> {
        over(self.tcp(from)?, &self.http2)
    }
}

fn config(
    protocol: &[u8],
    roots: &rustls::RootCertStore,
    client: Option<&PeerCertificate>,
) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the defaults are safe")
        .with_root_certificates(roots.clone());
    let mut config = match client {
        None => config.with_no_client_auth(),
        Some(client) => config
            .with_client_auth_cert(client.chain.clone(), client.key.clone_key())
            .expect("the key fits"),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

fn over(mut tcp: TcpStream, config: &Arc<rustls::ClientConfig>) -> io::Result<Tls> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = rustls::ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut tcp)?;
    }
    Ok(rustls::StreamOwned::new(connection, tcp))
}

/// A request. The declared body length may differ from the real one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: impl Into<String>) -> Self {
        Self {
            method: method.to_owned(),
            path: path.into(),
            ..Self::default()
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    /// A POST of a JSON document.
    pub(crate) fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", path).body("application/json", body)
    }

    pub(crate) fn put(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self::new("PUT", path).body("application/json", body)
    }

    /// A PATCH; `kind` is the part of the media type before `-patch`.
    pub(crate) fn patch(kind: &str, path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        let suffix = match kind {
            "apply" => "+yaml",
            _ => "+json",
        };
        Self::new("PATCH", path).body(&format!("application/{kind}-patch{suffix}"), body)
    }

    pub(crate) fn body(mut self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("Content-Type", media_type)
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The encoded head; `token` is a bearer token, empty for none.
    pub(crate) fn head(&self, token: &str) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method, self.path);
        if !token.is_empty() {
            text += &format!("Authorization: Bearer {token}\r\n");
        }
        for (name, value) in &self.headers {
            text.push_str(name);
            text.push_str(": ");
            text.push_str(value);
            text.push_str("\r\n");
        }
        if !self.body.is_empty() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        text += "\r\n";
        text.into_bytes()
    }
}

/// A response. Only the beginning of the body is kept.
#[derive(Debug, Default)]
pub(crate) struct GatewayResponse {
    pub code: u16,
    pub headers: Vec<(String, String)>,
    pub start: Vec<u8>,
    pub length: u64,
}

/// The number of body bytes that are kept.
const KEPT: usize = 64 << 10;

impl GatewayResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(n, v)| (n == name).then_some(v.as_str()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.start).into_owned()
    }
}

/// A reader with a deadline, after which reads fail with `TimedOut`.
pub(crate) struct Reader<'a, S> {
    io: &'a mut S,
    until: Instant,
    buffer: Vec<u8>,
    at: usize,
}

/// A stream whose reads can be given a deadline.
pub(crate) trait Deadline: Read {
    fn expire_at(&mut self, until: Instant) -> io::Result<()>;
}

impl Deadline for Tls {
    fn expire_at(&mut self, until: Instant) -> io::Result<()> {
        self.sock.expire_at(until)
    }
}

impl Deadline for TcpStream {
    fn expire_at(&mut self, until: Instant) -> io::Result<()> {
        // set_read_timeout rejects a zero duration.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.set_read_timeout(Some(left))
    }
}

impl<'a, S: Deadline> Reader<'a, S> {
    pub(crate) fn new(io: &'a mut S, until: Instant) -> Self {
        Self {
            io,
            until,
            buffer: Vec::new(),
            at: 0,
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.resize(64 << 10, 0);
        self.io.expire_at(self.until)?;
        let n = match self.io.read(&mut self.buffer) {
            // A socket read timeout is reported as WouldBlock on Unix.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            other => other?,
        };
        self.buffer.truncate(n);
        self.at = 0;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            if self.at == self.buffer.len() {
                self.fill()?;
            }
            let byte = self.buffer[self.at];
            self.at += 1;
            match byte {
                b'\n' => return Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()),
                byte => line.push(byte),
            }
        }
    }

    fn take(&mut self, mut n: u64, answer: &mut GatewayResponse) -> io::Result<()> {
        while n > 0 {
            if self.at == self.buffer.len() {
                self.fill()?;
            }
            let part = usize::try_from(n)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len() - self.at);
            // Count the whole body, but keep only its beginning: some responses are endless.
            let kept = part.min(KEPT - answer.start.len());
            answer.start.extend_from_slice(&self.buffer[self.at..self.at + kept]);
            answer.length += part as u64;
            self.at += part;
            n -= part as u64;
        }
        Ok(())
    }

    /// Reads the next response that is not informational.
    pub(crate) fn answer(&mut self) -> io::Result<GatewayResponse> {
        loop {
            let first = self.line()?;
            let mut answer = GatewayResponse::default();
            let code = first.split(' ').nth(1).and_then(|c| c.parse().ok());
            answer.code = code.ok_or_else(|| io::Error::other(format!("no answer: {first}")))?;
            loop {
                let line = self.line()?;
                let Some((name, value)) = line.split_once(':') else {
                    break;
                };
                let header = (name.to_ascii_lowercase(), value.trim().to_owned());
                answer.headers.push(header);
            }
            // 101 is final: the connection is upgraded.
            if (100..200).contains(&answer.code) && answer.code != 101 {
                continue;
            }
            if let Some(length) = answer.header("content-length").and_then(|v| v.parse().ok()) {
                self.take(length, &mut answer)?;
            } else if answer.header("transfer-encoding").is_some() {
                loop {
                    let size = u64::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
                    self.take(size, &mut answer)?;
                    self.line()?;
                    if size == 0 {
                        break;
                    }
                }
            }
            return Ok(answer);
        }
    }
}

/// Reads one response from a connection.
pub(crate) fn answer<S: Deadline>(io: &mut S, at_most: Duration) -> io::Result<GatewayResponse> {
    Reader::new(io, Instant::now() + at_most).answer()
}

/// Sends head and body.
pub(crate) fn send(io: &mut impl Write, request: &Request, token: &str) -> io::Result<()> {
    io.write_all(&request.head(token))?;
    io.write_all(&request.body)?;
    io.flush()
}
