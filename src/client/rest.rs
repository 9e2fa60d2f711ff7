//! A small API client for programs built on this library: one server, JSON in and out. Entry point:
//! [`Client::try_new`].
//!
//! Used for delegated authentication and authorization and for the registration of an extension server. User
//! traffic takes the aggregator's proxy, which has its own connection pool.

use super::http::{HttpClient, HttpError, Limits};
use super::kubeconfig::ClientConfig;
use super::retry::{Retry, Retryable};
use crate::apimachinery::Value;
use crate::apimachinery::codec::json;
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::fmt;
use std::time::Duration;

/// Upper limit on the size of a response. Lists of an extension server's configuration are far smaller.
const MAX_RESPONSE: usize = 64 << 20;
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

impl Retryable for ClientError {
    fn retry(&self) -> Retry {
        match self {
            Self::Config(_) => Retry::No,
            Self::Transport(_) => Retry::Backoff,
            Self::Api(code, _) if code.is_server_error() || *code == StatusCode::TOO_MANY_REQUESTS => Retry::Backoff,
            Self::Api(..) => Retry::No,
        }
    }
}

impl ClientError {
    /// The HTTP status, if the server responded with an error.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(code, _) => Some(code.as_u16()),
            _ => None,
        }
    }
}

/// A client of one API server.
///
/// ```no_run
/// use torana::sdk::client::{Client, ClientConfig};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::try_new(&ClientConfig::from_kubeconfig("admin.kubeconfig".as_ref())?)?;
/// let list = client.get("/api/v1/namespaces").await?;
/// println!("{} namespaces", list.get("items").items().len());
///
/// let since = list.str_at(&["metadata", "resourceVersion"]);
/// let mut events = client.watch(&format!("/api/v1/namespaces?watch=1&resourceVersion={since}")).await?;
/// while let Some(event) = events.next().await {
///     println!("{} {}", event.str_at(&["type"]), event.str_at(&["object", "metadata", "name"]));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Client {
    base: String,
    http: HttpClient,
}

impl Client {
    /// Creates a client for this configuration. It connects on first use.
    ///
    /// # Errors
    /// [`ClientError::Config`] if a certificate, key, name or URL cannot be used.
    pub fn try_new(config: &ClientConfig) -> Result<Self, ClientError> {
        let limits = Limits {
            timeout: REQUEST_TIMEOUT,
            max_response: MAX_RESPONSE,
        };
        let uri: Uri = config.server.parse().map_err(|e| ClientError::Config(format!("{e}")))?;
        // `Uri` also accepts a path alone.
        if uri.host().is_none() {
            return Err(ClientError::Config("the server URL has no host".to_owned()));
        }
        Ok(Self {
            base: config.server.clone(),
            http: HttpClient::try_new(config, limits).map_err(|e| ClientError::Config(e.to_string()))?,
        })
    }

    fn uri(&self, path: &str) -> Result<Uri, ClientError> {
        let uri = format!("{}{path}", self.base).parse();
        uri.map_err(|e: http::uri::InvalidUri| ClientError::Config(e.to_string()))
    }

    fn lost(&self, path: &str, error: &HttpError) -> ClientError {
        ClientError::Transport(match error {
            // A timeout concerns one request, any other failure the server as a whole.
            HttpError::Timeout(_) => format!("{}{path}: {error}", self.base),
            _ => format!("{}: {error}", self.base),
        })
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
        let body = body.map_or_else(Bytes::new, |b| json::to_vec(b).into());
        let response = self.http.send(method, self.uri(path)?, content_type, body).await;
        let response = response.map_err(|e| self.lost(path, &e))?;
        let (status, bytes) = (response.status(), response.into_body());
        // A body that is not JSON becomes the message, since proxies and load balancers answer with text or HTML.
        let value = json::decode(&bytes).unwrap_or_else(
            |_| crate::json!({"message": String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).trim()}),
        );
        if status.is_client_error() || status.is_server_error() {
            return Err(ClientError::Api(status, Box::new(value)));
        }
        Ok(value)
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
        // Not the other way round: whoever loses a race of two creations gets the conflict, and patches.
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
        let response = self.http.open(self.uri(path)?).await;
        let response = response.map_err(|e| self.lost(path, &e))?;
        // Received within the limits of an ordinary request, unlike the events of a watch.
        if !response.status().is_success() {
            let refusal = self.http.receive(response).await.map_err(|e| self.lost(path, &e))?;
            // Text or HTML of a load balancer: the status code has to suffice.
            let status = json::decode(refusal.body()).unwrap_or_default();
            return Err(ClientError::Api(refusal.status(), Box::new(status)));
        }
        Ok(Events {
            body: response.into_body(),
            pending: BytesMut::new(),
            searched: 0,
        })
    }
}

/// The event stream of a watch.
///
/// ```
/// use torana::sdk::client::{Client, ClientError};
///
/// /// Waits until an object below `path` is deleted. False if the watch ends first.
/// async fn await_deletion(client: &Client, path: &str) -> Result<bool, ClientError> {
///     let mut events = client.watch(&format!("{path}?watch=1")).await?;
///     while let Some(event) = events.next().await {
///         if event.str_at(&["type"]) == "DELETED" {
///             return Ok(true);
///         }
///     }
///     Ok(false)
/// }
/// ```
pub struct Events {
    body: Incoming,
    pending: BytesMut,
    /// Bytes of `pending` that are known to contain no line end. A line may arrive in thousands of frames.
    searched: usize,
}

impl Events {
    /// The next event (`{"type":…,"object":…}`); `None` at the end of the stream, or when it breaks.
    ///
    /// # Cancel safety
    /// Cancel safe: a partial line stays buffered.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending[self.searched..].iter().position(|b| *b == b'\n') {
                let line = self.pending.split_to(self.searched + end + 1);
                self.searched = 0;
                // A line that is not JSON ends the watch like a broken connection: the caller lists again.
                return json::decode(&line).ok();
            }
            self.searched = self.pending.len();
            // A line without an end must not grow for ever.
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
