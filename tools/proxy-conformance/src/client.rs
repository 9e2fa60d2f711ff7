//! The client in front of the gateway: raw HTTP/1.1, or HTTP/2.

pub mod frames;
mod h2;

use crate::pki;
use crate::wire::{self, Headers};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The deadline of any exchange.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to the gateway.
pub type Io = BufReader<TlsStream<TcpStream>>;

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The client's credentials.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A bearer token.
    Token(String),
    /// A client certificate and its key, in PEM.
    Certificate(String, String),
}

/// A gateway and the credentials to call it with.
#[derive(Clone)]
pub struct Target {
    /// `host:port`.
    pub authority: String,
    name: ServerName<'static>,
    tls: Arc<rustls::ClientConfig>,
    token: Option<String>,
}

/// A request's body.
#[derive(Clone, Debug, Default)]
pub enum RequestBody {
    /// No body.
    #[default]
    None,
    /// A body with a `Content-Length`.
    Sized(Vec<u8>),
    /// A chunked body, with trailers.
    Chunked(Vec<Vec<u8>>, Headers),
}

/// A request to send.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target, sent unmodified.
    pub target: String,
    /// Headers besides `Host` and the credentials, sent unmodified.
    pub headers: Headers,
    /// The body.
    pub body: RequestBody,
    /// HTTP/1.1: send these bytes instead of all of the above.
    pub raw: Option<Vec<u8>>,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The status codes of informational responses before it.
    pub early: Vec<u16>,
    /// The status.
    pub status: u16,
    /// The headers, spelled as received over HTTP/1.1.
    pub headers: Headers,
    /// The body.
    pub body: wire::Body,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body.data).into_owned()
    }

    /// All values of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        wire::values(&self.headers, name)
    }
}

impl Target {
    /// The gateway at `url`, whose certificate was issued by a CA in `trusted`.
    ///
    /// # Errors
    /// If an argument cannot be parsed.
    pub fn try_new(url: &str, trusted: &str, credentials: &Credentials) -> Result<Self, String> {
        let rest = url
            .strip_prefix("https://")
            .ok_or("the server is to be an https:// URL")?;
        let authority = rest.split('/').next().unwrap_or(rest);
        let authority = if authority
            .rsplit_once(':')
            .is_some_and(|(_, p)| p.parse::<u16>().is_ok())
        {
            authority.to_owned()
        } else {
            format!("{authority}:443")
        };
        let host = authority
            .rsplit_once(':')
            .map_or("", |(h, _)| h)
            .trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("{host}: {e}"))?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in pki::certificates(trusted)? {
            roots.add(certificate).map_err(|e| e.to_string())?;
        }
        let builder = rustls::ClientConfig::builder_with_provider(pki::provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots);
        let tls = match credentials {
            Credentials::Token(_) => builder.with_no_client_auth(),
            Credentials::Certificate(cert, key) => {
                // rustls' own error message would quote the offending part, which belongs to a private key.
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|_| "the client key is not PEM".to_owned())?;
                builder
                    .with_client_auth_cert(pki::certificates(cert)?, key)
                    .map_err(|e| e.to_string())?
            }
        };
        let token = match credentials {
            Credentials::Token(token) => Some(token.clone()),
            Credentials::Certificate(..) => None,
        };
        Ok(Self {
            authority,
            name,
            tls: Arc::new(tls),
            token,
        })
    }

    /// Opens a connection with one HTTP version.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn connect(&self, http: Http) -> Result<TlsStream<TcpStream>, String> {
        let tcp = TcpStream::connect(&self.authority)
            .await
            .map_err(|e| format!("{}: {e}", self.authority))?;
        tcp.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut tls = rustls::ClientConfig::clone(&self.tls);
        tls.alpn_protocols = vec![match http {
            Http::Http1 => b"http/1.1".to_vec(),
            Http::Http2 => b"h2".to_vec(),
        }];
        let connector = TlsConnector::from(Arc::new(tls));
        let io = connector.connect(self.name.clone(), tcp).await;
        io.map_err(|e| format!("{}: {e}", self.authority))
    }

    /// The header that carries the credentials, if they are sent in a header.
    pub fn credentials(&self) -> Headers {
        let token = self.token.iter();
        token
            .map(|t| ("Authorization".to_owned(), format!("Bearer {t}")))
            .collect()
    }

    /// Sends one request over a new connection.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn exchange(&self, http: Http, request: &Request) -> Result<Response, String> {
        let answer = async {
            match http {
                Http::Http1 => {
                    let (response, _) = self.over_http1(request).await?;
                    Ok(response)
                }
                Http::Http2 => h2::exchange(self, request).await,
            }
        };
        let answer = tokio::time::timeout(TIMEOUT, answer).await;
        answer.unwrap_or_else(|_| Err(format!("no response within {TIMEOUT:?}")))
    }

    /// Sends one request over HTTP/1.1 and returns the connection as well.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn over_http1(&self, request: &Request) -> Result<(Response, Io), String> {
        let mut io = BufReader::new(self.connect(Http::Http1).await?);
        // The response may arrive, and the connection close, before everything is written.
        let _ = self.write(&mut io, request).await;
        let response = answer(&mut io, &request.method).await?;
        Ok((response, io))
    }

    async fn write(&self, io: &mut Io, request: &Request) -> std::io::Result<()> {
        if let Some(raw) = &request.raw {
            io.write_all(raw).await?;
            return io.flush().await;
        }
        let mut headers = vec![("Host".to_owned(), self.authority.clone())];
        headers.extend(self.credentials());
        headers.extend(request.headers.iter().cloned());
        match &request.body {
            RequestBody::None => {}
            RequestBody::Sized(data) => headers.push(("Content-Length".into(), data.len().to_string())),
            RequestBody::Chunked(_, trailers) => {
                headers.push(("Transfer-Encoding".into(), "chunked".into()));
                if !trailers.is_empty() {
                    let names: Vec<&str> = trailers.iter().map(|(n, _)| n.as_str()).collect();
                    headers.push(("Trailer".into(), names.join(", ")));
                }
            }
        }
        let line = format!("{} {} HTTP/1.1", request.method, request.target);
        io.write_all(&wire::encode_head(&line, &headers)).await?;
        io.flush().await?;
        match &request.body {
            RequestBody::None => {}
            RequestBody::Sized(data) => io.write_all(data).await?,
            RequestBody::Chunked(pieces, trailers) => {
                for piece in pieces {
                    io.write_all(&wire::chunk(piece)).await?;
                    io.flush().await?;
                }
                let mut end = b"0\r\n".to_vec();
                for (name, value) in trailers {
                    end.extend(format!("{name}: {value}\r\n").into_bytes());
                }
                end.extend(b"\r\n");
                io.write_all(&end).await?;
            }
        }
        io.flush().await
    }

    /// Calls the gateway's own API.
    ///
    /// # Errors
    /// The status code and body of a failed request.
    pub async fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, (u16, String)> {
        let mut request = Request {
            method: method.to_owned(),
            target: path.to_owned(),
            headers: vec![("Accept".into(), "application/json".into())],
            ..Request::default()
        };
        if let Some(body) = body {
            let kind = match method {
                "PATCH" => "application/merge-patch+json",
                _ => "application/json",
            };
            request.headers.push(("Content-Type".into(), kind.into()));
            request.body = RequestBody::Sized(body.to_string().into_bytes());
        }
        let response = self.exchange(Http::Http1, &request).await.map_err(|e| (0, e))?;
        if !(200..300).contains(&response.status) {
            return Err((
                response.status,
                format!("{method} {path}: {} {}", response.status, response.text()),
            ));
        }
        serde_json::from_slice(&response.body.data).map_err(|e| (response.status, format!("{method} {path}: {e}")))
    }
}

/// Reads informational responses and the response.
///
/// # Errors
/// If the connection ends before the response does.
pub async fn answer(io: &mut Io, method: &str) -> Result<Response, String> {
    let mut response = Response::default();
    loop {
        let head = wire::head(io)
            .await
            .map_err(|e| format!("the response breaks off: {e}"))?;
        let head = head.ok_or("the connection is closed without a response")?;
        let status = head.first.split(' ').nth(1).and_then(|s| s.parse().ok());
        response.status = status.ok_or_else(|| format!("{:?} is not a status line", head.first))?;
        if (100..200).contains(&response.status) && response.status != 101 {
            response.early.push(response.status);
            continue;
        }
        response.headers = head.headers;
        break;
    }
    response.body = if method == "HEAD" || matches!(response.status, 101 | 204 | 304) {
        wire::Body {
            whole: true,
            ..wire::Body::default()
        }
    } else {
        wire::body(io, &response.headers, true).await
    };
    Ok(response)
}
