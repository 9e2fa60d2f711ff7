//! HTTP/1.1 as written on the wire, over TLS: nothing normalises paths, headers or bodies on the way.
//! Blocking, because each case runs on a thread of its own.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Documents of an unoptimised server can take seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server may refuse bodies above this before it has read them.
const LARGE: usize = 1_000_000;

pub(crate) type Headers = Vec<(String, String)>;

pub(crate) struct Request {
    pub method: String,
    pub path: String,
    pub headers: Headers,
    pub body: Option<Vec<u8>>,
}

#[derive(Clone)]
pub(crate) struct Response {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// The first header of this name.
pub(crate) fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    found.map(|(_, v)| v.as_str())
}

/// Where a server listens, and whom its certificate is checked against.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Host and port.
    pub authority: String,
    tls: Arc<ClientConfig>,
}

impl Endpoint {
    pub(crate) fn new(url: &str, ca: &[u8]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            authority: url.trim_start_matches("https://").trim_end_matches('/').to_owned(),
            tls: Arc::new(tls),
        }
    }
}

/// A TLS connection. Reading never writes: when a server closes before it has read a whole request, its
/// response can still be read.
struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl Read for Tls {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let StreamOwned { conn, sock } = &mut self.0;
        loop {
            match conn.reader().read(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            conn.read_tls(sock)?;
            conn.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

type Stream = BufReader<Tls>;

pub(crate) struct Connection {
    stream: Stream,
}

impl Connection {
    pub(crate) fn open(to: &Endpoint) -> io::Result<Self> {
        let (host, _) = to.authority.rsplit_once(':').unwrap_or((&to.authority, ""));
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut tcp = TcpStream::connect(&to.authority)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        let mut tls = ClientConnection::new(to.tls.clone(), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Self {
            stream: BufReader::with_capacity(64 << 10, Tls(StreamOwned::new(tls, tcp))),
        })
    }

    /// Sends a request and reads the head of its response.
    fn send(&mut self, request: &Request) -> io::Result<Response> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.path).into_bytes();
        for (name, value) in &request.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let writes = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
        let body = request.body.as_deref().or(writes.then_some(&[][..]));
        if let Some(body) = body {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.unwrap_or_default());
        let tls = &mut self.stream.get_mut().0;
        let sent = tls.write_all(&bytes).and_then(|()| tls.flush());
        if let Err(e) = sent
            && bytes.len() < LARGE
        {
            return Err(e);
        }
        loop {
            let (first, headers) = read_head(&mut self.stream)?;
            let status = first.split(' ').nth(1).and_then(|s| s.parse().ok());
            let status = status.ok_or_else(|| io::Error::other(format!("no status code in {first:?}")))?;
            if status >= 200 {
                let body = Vec::new();
                return Ok(Response { status, headers, body });
            }
        }
    }
}

/// Reads up to the empty line: the first line and the headers.
pub(crate) fn read_head(from: &mut impl BufRead) -> io::Result<(String, Headers)> {
    let first = read_line(from)?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok((first, headers));
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| io::Error::other(format!("no colon in {line:?}")))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&line);
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a body whose length is in the headers. `None`: it ends with the connection.
pub(crate) fn read_body(from: &mut impl BufRead, headers: &Headers) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    if header(headers, "transfer-encoding").is_some() {
        loop {
            let size = read_line(from)?;
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            let start = body.len();
            body.resize(start + size, 0);
            from.read_exact(&mut body[start..])?;
            read_line(from)?;
            if size == 0 {
                return Ok(Some(body));
            }
        }
    }
    let Some(length) = header(headers, "content-length") else {
        return Ok(None);
    };
    body.resize(length.parse().map_err(io::Error::other)?, 0);
    from.read_exact(&mut body)?;
    Ok(Some(body))
}

/// One user of a kept-alive connection.
pub(crate) struct Client {
    endpoint: Endpoint,
    idle: Option<Connection>,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, idle: None }
    }

    /// One request. It is sent again if it failed on a kept-alive connection, which the server may have
    /// closed.
    pub(crate) fn send(&mut self, request: &Request) -> io::Result<Response> {
        if let Some(idle) = self.idle.take()
            && let Ok(response) = self.send_on(idle, request)
        {
            return Ok(response);
        }
        let new = Connection::open(&self.endpoint)?;
        self.send_on(new, request)
    }

    fn send_on(&mut self, mut connection: Connection, request: &Request) -> io::Result<Response> {
        let mut response = connection.send(request)?;
        let bodiless = request.method == "HEAD" || matches!(response.status, 204 | 304);
        let whole = match bodiless {
            true => Some(Vec::new()),
            false => read_body(&mut connection.stream, &response.headers)?,
        };
        let closes = header(&response.headers, "connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
        let large = request.body.as_ref().is_some_and(|b| b.len() > LARGE);
        if whole.is_some() && !closes && !large {
            self.idle = Some(connection);
        } else if whole.is_none() {
            read_to_close(&mut connection.stream, &mut response.body)?;
        }
        if let Some(whole) = whole {
            response.body = whole;
        }
        Ok(response)
    }

    /// Opens a watch on a connection of its own.
    pub(crate) fn watch(&self, request: &Request) -> io::Result<Streaming> {
        let mut connection = Connection::open(&self.endpoint)?;
        let head = connection.send(request)?;
        Ok(Streaming {
            chunked: header(&head.headers, "transfer-encoding").is_some(),
            head,
            connection,
            raw: Vec::new(),
            ended: false,
        })
    }
}

/// A connection that ends without a TLS goodbye still ends.
fn read_to_close(stream: &mut Stream, into: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_to_end(into) {
        Err(e) if e.kind() != ErrorKind::UnexpectedEof => Err(e),
        _ => Ok(()),
    }
}

/// A response whose body is read bit by bit.
pub(crate) struct Streaming {
    /// The head, and the body read so far.
    pub head: Response,
    connection: Connection,
    chunked: bool,
    /// Bytes whose chunk is not complete.
    raw: Vec<u8>,
    pub ended: bool,
}

impl Streaming {
    /// Reads until `enough` holds, the body ends, or the time is over.
    pub(crate) fn read(&mut self, until: Instant, mut enough: impl FnMut(&[u8]) -> bool) {
        while !self.ended && !enough(&self.head.body) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let tcp = &self.connection.stream.get_ref().0.sock;
            tcp.set_read_timeout(Some(left)).unwrap();
            match self.connection.stream.fill_buf() {
                Ok([]) => self.ended = true,
                Ok(bytes) => {
                    let n = bytes.len();
                    self.raw.extend_from_slice(bytes);
                    self.connection.stream.consume(n);
                    self.unpack();
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => self.ended = true,
            }
        }
    }

    /// Moves complete chunks into the body.
    fn unpack(&mut self) {
        if !self.chunked {
            self.head.body.append(&mut self.raw);
            let length = header(&self.head.headers, "content-length").and_then(|l| l.parse().ok());
            self.ended |= length == Some(self.head.body.len());
            return;
        }
        while let Some(line) = self.raw.iter().position(|b| *b == b'\n') {
            let size = String::from_utf8_lossy(&self.raw[..line]);
            let size = usize::from_str_radix(size.trim(), 16).expect("a chunk starts with its size");
            let (start, end) = (line + 1, line + 1 + size);
            if self.raw.len() < end + 2 {
                return;
            }
            self.head.body.extend_from_slice(&self.raw[start..end]);
            self.raw.drain(..end + 2);
            if size == 0 {
                self.ended = true;
                return;
            }
        }
    }
}
