//! A small API client for programs built on this library: one HTTP/2 connection to one server, JSON in and out. Entry
//! point: [`Client::try_new`].
//!
//! Used for delegated authentication and authorization and for the registration of an extension server. User traffic
//! takes the aggregator's proxy, which has its own connection pool.

use super::kubeconfig::ClientConfig;
use crate::apimachinery::Value;
use crate::apimachinery::codec::json;
use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Upper limit on the size of a response. Lists of an extension server's configuration are far smaller.
const MAX_RESPONSE: usize = 64 << 20;
/// Limit for establishing the connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for a whole request, except watches.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call failed.
#[derive(Debug)]
pub enum ClientError {
    /// The configuration cannot be used.
    Config(String),
    /// The server was not reached, or the connection failed. A retry may help.
    Transport(String),
    /// The server responded with an error: the code and the `Status` object it sent.
    Api(StatusCode, Box<Value>),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) | Self::Transport(e) => f.write_str(e),
            Self::Api(code, status) => write!(f, "{code}: {}", status.str_at(&["message"])),
        }
    }
}

impl std::error::Error for ClientError {}

impl ClientError {
    /// The HTTP status, if the server responded with an error.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(code, _) => Some(code.as_u16()),
            _ => None,
        }
    }
}

type Sender = http2::SendRequest<Full<Bytes>>;

/// A client of one API server.
pub struct Client {
    host: String,
    port: u16,
    base: String,
    server_name: ServerName<'static>,
    authorization: Option<header::HeaderValue>,
    tls: Arc<rustls::ClientConfig>,
    connection: ArcSwapOption<Sender>,
    connecting: tokio::sync::Mutex<()>,
}

impl Client {
    /// Creates a client for this configuration. It connects on first use.
    ///
    /// # Errors
    /// [`ClientError::Config`] if a certificate, key, name or URL cannot be used.
    pub fn try_new(config: &ClientConfig) -> Result<Self, ClientError> {
        let bad = |e: &dyn fmt::Display| ClientError::Config(e.to_string());
        let uri: http::Uri = config.server.parse().map_err(|e| bad(&e))?;
        let host = uri.host().ok_or_else(|| bad(&"the server URL names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = config.tls_server_name.clone().unwrap_or_else(|| host.clone());
        let server_name = ServerName::try_from(name).map_err(|e| bad(&e))?;
        let roots = config.roots().map_err(ClientError::Config)?;
        let tls = config.tls(roots, b"h2").map_err(ClientError::Config)?;
        let authorization = config.authorization().map_err(ClientError::Config)?;
        Ok(Self {
            host,
            port: uri.port_u16().unwrap_or(443),
            base: config.server.clone(),
            server_name,
            authorization,
            tls: Arc::new(tls),
            connection: ArcSwapOption::empty(),
            connecting: tokio::sync::Mutex::new(()),
        })
    }

    async fn sender(&self) -> Result<Sender, ClientError> {
        if let Some(s) = self.connection.load().as_deref().filter(|s| !s.is_closed()) {
            return Ok(s.clone());
        }
        let _one_at_a_time = self.connecting.lock().await;
        // Another task may have connected while this one waited for the lock.
        if let Some(s) = self.connection.load().as_deref().filter(|s| !s.is_closed()) {
            return Ok(s.clone());
        }
        let sender = tokio::time::timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .map_err(|_| ClientError::Transport(format!("{}: connecting timed out", self.base)))??;
        self.connection.store(Some(Arc::new(sender.clone())));
        Ok(sender)
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let lost = |e: &dyn fmt::Display| ClientError::Transport(format!("{}: {e}", self.base));
        let tcp = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|e| lost(&e))?;
        tcp.set_nodelay(true).map_err(|e| lost(&e))?;
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        let tls = connector
            .connect(self.server_name.clone(), tcp)
            .await
            .map_err(|e| lost(&e))?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15))
            .handshake(TokioIo::new(tls))
            .await
            .map_err(|e| lost(&e))?;
        // Ends when the last sender, held by this client, is dropped or the peer closes the connection.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, ClientError> {
        let mut req = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::ACCEPT, "application/json");
        if !body.is_empty() {
            req = req.header(header::CONTENT_TYPE, kind);
        }
        if let Some(a) = &self.authorization {
            req = req.header(header::AUTHORIZATION, a.clone());
        }
        let req = req
            .body(Full::new(body))
            .map_err(|e| ClientError::Config(e.to_string()))?;
        let mut sender = self.sender().await?;
        sender
            .ready()
            .await
            .map_err(|e| ClientError::Transport(e.to_string()))?;
        sender
            .send_request(req)
            .await
            .map_err(|e| ClientError::Transport(format!("{}: {e}", self.base)))
    }

    /// Sends a request with an optional JSON body of this `content_type` and reads the
    /// JSON response, within 30 seconds.
    ///
    /// # Errors
    /// [`ClientError`]; every status from 400 on is [`ClientError::Api`].
    ///
    /// # Cancel safety
    /// The server may have processed the request even if the future is dropped.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let call = async {
            let body = body.map_or_else(Bytes::new, |b| json::to_vec(b).into());
            let resp = self.send(method, path, content_type, body).await?;
            let status = resp.status();
            let bytes = Limited::new(resp.into_body(), MAX_RESPONSE).collect().await;
            let bytes = bytes.map_err(|e| ClientError::Transport(e.to_string()))?.to_bytes();
            let value = json::decode(&bytes).unwrap_or_else(
                |_| crate::json!({"message": String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).trim()}),
            );
            if status.is_client_error() || status.is_server_error() {
                return Err(ClientError::Api(status, Box::new(value)));
            }
            Ok(value)
        };
        let late = || ClientError::Transport(format!("{}{path}: no answer within {REQUEST_TIMEOUT:?}", self.base));
        tokio::time::timeout(REQUEST_TIMEOUT, call).await.map_err(|_| late())?
    }

    /// Sends a GET and returns the object.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.request(Method::GET, path, "", None).await
    }

    /// Creates an object: POST to a collection.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        self.request(Method::POST, path, "application/json", Some(object)).await
    }

    /// Applies a JSON merge patch to an object.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Result<Value, ClientError> {
        self.request(Method::PATCH, path, "application/merge-patch+json", Some(patch))
            .await
    }

    /// Creates the object in `collection`, or merge-patches the existing object of that name.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn create_or_patch(&self, collection: &str, object: &Value) -> Result<Value, ClientError> {
        match self.create(collection, object).await {
            Err(e) if e.code() == Some(409) => {
                let name = object.str_at(&["metadata", "name"]);
                self.merge_patch(&format!("{collection}/{name}"), object).await
            }
            other => other,
        }
    }

    /// Opens a watch. `path` includes the query. [`Events::next`] returns `None` when the server ends it.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn watch(&self, path: &str) -> Result<Events, ClientError> {
        let resp = self.send(Method::GET, path, "", Bytes::new()).await?;
        if !resp.status().is_success() {
            let status = resp.status();
            let bytes = Limited::new(resp.into_body(), MAX_RESPONSE)
                .collect()
                .await
                .map(|b| b.to_bytes())
                .unwrap_or_default();
            return Err(ClientError::Api(
                status,
                Box::new(json::decode(&bytes).unwrap_or_default()),
            ));
        }
        Ok(Events {
            body: resp.into_body(),
            pending: BytesMut::new(),
        })
    }
}

/// The event stream of a watch.
pub struct Events {
    body: Incoming,
    pending: BytesMut,
}

impl Events {
    /// The next event (`{"type":…,"object":…}`); `None` at the end of the stream, or when it breaks.
    ///
    /// # Cancel safety
    /// Cancel safe: a partial line stays buffered.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line = self.pending.split_to(end + 1);
                return json::decode(&line).ok();
            }
            if self.pending.len() > MAX_RESPONSE {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Some(data) = frame.data_ref() {
                self.pending.extend_from_slice(data);
            }
        }
    }
}
