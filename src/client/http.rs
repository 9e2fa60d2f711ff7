//! [`HttpClient`]: bounded requests to configured https servers. [`super::Client`], [`super::Fetcher`] and
//! [`super::probe`] build on it: paths and objects, JSON with retries, errors in Go's wording.
//!
//! Connections, HTTP/1.1 or HTTP/2 by ALPN, and their pool are hyper-util's. Redirects are not followed.
//! Proxies use [`crate::proxy::backend`] or the aggregator's transport instead: their bodies are streams, and
//! their connections are upgraded, watched and counted.

use super::bearer::BearerToken;
use super::kubeconfig::{ClientConfig, CredentialsError};
use crate::proxy::interim::InterimLimit;
use crate::proxy::io::TrackedStream;
use crate::proxy::lookups::{self, LookupError};
use crate::proxy::tcp::DIAL_TIMEOUT;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::util::{MapResponse, ServiceFn, service_fn};

/// Limit for establishing a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept, as in Go's default transport.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Unused HTTP/1.1 connections kept per server.
const MAX_IDLE: usize = 8;

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until the response has arrived; of a stream, until its head has.
    pub timeout: Duration,
    /// Size of a response, in bytes.
    pub max_response: usize,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// No connection, or it failed before the head of the response arrived. The root cause is the readable
    /// part.
    #[error("{}", root_cause(.0))]
    Transport(#[source] legacy::Error),
    /// The body broke off or is too long.
    #[error("{1}")]
    Body(StatusCode, #[source] Box<dyn Error + Send + Sync>),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{}", InterimLimit::error_text())]
    TooManyInformational,
    #[error(transparent)]
    Request(#[from] http::Error),
}

/// The error at the end of the chain of sources.
pub(super) fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// A pending name lookup.
type Lookup = Pin<Box<dyn Future<Output = Result<std::vec::IntoIter<SocketAddr>, LookupError>> + Send>>;
/// Makes TCP connections: [`look_up`] finds the addresses, and [`paced`] wraps what is read.
type Tcp = MapResponse<HttpConnector<ServiceFn<fn(Name) -> Lookup>>, fn(TokioIo<TcpStream>) -> TokioIo<TrackedStream>>;

/// Looks names up within the limits of the process: a provider whose name hangs costs one thread, not one per token.
fn look_up(name: Name) -> Lookup {
    Box::pin(async move {
        let found = lookups::system()
            .find(name.as_str(), Instant::now() + DIAL_TIMEOUT)
            .await?;
        Ok(found.into_iter())
    })
}

/// Makes the connection's task yield from time to time. HTTP/2 keeps the informational responses that have not been
/// read, and they are read by another task, which must get its turn.
fn paced(tcp: TokioIo<TcpStream>) -> TokioIo<TrackedStream> {
    TokioIo::new(TrackedStream::new(tcp.into_inner()))
}

/// A client with one set of trust anchors and credentials.
pub(super) struct HttpClient {
    pool: legacy::Client<HttpsConnector<Tcp>, Full<Bytes>>,
    authorization: Option<BearerToken>,
    limits: Limits,
}

impl HttpClient {
    /// Uses the trust anchors and credentials of a kubeconfig.
    ///
    /// # Errors
    /// [`CredentialsError`]
    pub(super) fn try_new(config: &ClientConfig, limits: Limits) -> Result<Self, CredentialsError> {
        let name = config.tls_server_name.clone().map(ServerName::try_from).transpose();
        let mut client = Self::with_tls(config.tls()?, name?, limits);
        client.authorization = config.authorization()?;
        Ok(client)
    }

    /// Uses this TLS configuration, and verifies `server_name` instead of the host of the URL if it is given.
    pub(super) fn with_tls(
        tls: rustls::ClientConfig,
        server_name: Option<ServerName<'static>>,
        limits: Limits,
    ) -> Self {
        // A function pointer instead of a closure, so that `Tcp` can name the connector's type.
        let mut tcp = HttpConnector::new_with_resolver(service_fn(look_up as fn(Name) -> Lookup));
        // The connector would otherwise refuse the https URLs that TLS is added for.
        tcp.enforce_http(false);
        // Nagle's algorithm would hold back the end of a request until the server acknowledges the part
        // before.
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // Credentials must not be sent in the clear, whatever the URL is.
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        let https = match server_name {
            Some(name) => https.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => https.with_server_name_resolver(DefaultServerNameResolver::default()),
        };
        let tcp: Tcp = MapResponse::new(tcp, paced as fn(_) -> _);
        let connector = https.enable_all_versions().wrap_connector(tcp);
        let pool = legacy::Client::builder(TokioExecutor::new())
            // hyper has no timer of its own: the first drives the HTTP/2 pings, the second closes idle
            // connections.
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            // As Go writes them; simple servers compare them so.
            .http1_title_case_headers(true)
            // client-go's defaults (`HTTP2_READ_IDLE_TIMEOUT_SECONDS`, `HTTP2_PING_TIMEOUT_SECONDS`).
            .http2_keep_alive_interval(Duration::from_secs(30))
            .http2_keep_alive_timeout(Duration::from_secs(15))
            .build(connector);
        Self {
            pool,
            authorization: None,
            limits,
        }
    }

    /// Sends a GET and waits for the head of the response. The body has no limits.
    ///
    /// # Errors
    /// [`HttpError`]
    ///
    /// # Cancel safety
    /// The server may have processed the request even if the future is dropped.
    pub(super) async fn open(&self, uri: Uri) -> Result<Response<Incoming>, HttpError> {
        let timeout = self.limits.timeout;
        let head = tokio::time::timeout(timeout, self.head(Method::GET, uri, "", Bytes::new())).await;
        head.map_err(|_| HttpError::Timeout(timeout))?
    }

    /// Sends a request and receives the response, whatever its status.
    ///
    /// # Errors
    /// [`HttpError`]
    ///
    /// # Cancel safety
    /// The server may have processed the request even if the future is dropped.
    pub(super) async fn send(
        &self,
        method: Method,
        uri: Uri,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Bytes>, HttpError> {
        let timeout = self.limits.timeout;
        // One limit for head and body together: a body that trickles must not take for ever.
        let exchange = async { self.receive(self.head(method, uri, content_type, body).await?).await };
        let response = tokio::time::timeout(timeout, exchange).await;
        response.map_err(|_| HttpError::Timeout(timeout))?
    }

    /// Receives the body of an opened response.
    pub(super) async fn receive(&self, response: Response<Incoming>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.limits.max_response).collect().await;
        // With the status: the metrics count it even if the body fails.
        let body = body.map_err(|e| HttpError::Body(head.status, e))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    async fn head(
        &self,
        method: Method,
        uri: Uri,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, HttpError> {
        let mut request = Request::builder().method(method).uri(uri);
        request = request.header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.header().await);
        }
        let mut request = request.body(Full::new(body))?;
        // Only over HTTP/1.1; over HTTP/2, hyper drops informational responses without counting them.
        let informational = InterimLimit::of(&mut request, None);
        let response = informational.enforce(self.pool.request(request)).await;
        let response = response.ok_or(HttpError::TooManyInformational)?;
        response.map_err(HttpError::Transport)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing;
    use crate::proxy::interim::MAX_INFORMATIONAL;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_flood_of_informational_responses_ends_the_request_and_its_connection() {
        for (count, passes) in [(MAX_INFORMATIONAL, true), (MAX_INFORMATIONAL + 1, false)] {
            let (acceptor, certificate) = testing::acceptor(&["localhost"]);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let uri = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
            let server = async {
                let (tcp, _) = listener.accept().await.unwrap();
                let mut tls = acceptor.accept(tcp).await.unwrap();
                // Before the request, anything would be an unexpected message.
                tls.read_u8().await.unwrap();
                let early = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count as usize);
                tls.write_all(early.as_bytes()).await.unwrap();
                if passes {
                    tls.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                }
                tls.flush().await.unwrap();
                // Until the client closes the connection, in whatever way.
                let _ = tls.read_to_end(&mut Vec::new()).await;
            };
            let config = ClientConfig {
                server: String::new(),
                ca_pem: Some(certificate.into_bytes()),
                tls_server_name: None,
                client_identity: None,
                token: None,
                token_file: None,
            };
            let limits = Limits {
                timeout: Duration::from_secs(60),
                max_response: 1024,
            };
            let client = HttpClient::try_new(&config, limits).unwrap();
            // The client is dropped with its connections when it has the response.
            let asked = async move { client.send(Method::GET, uri.parse().unwrap(), "", Bytes::new()).await };
            let (response, ()) = tokio::join!(asked, server);
            let status = response.map(|r| r.status().as_u16()).map_err(|e| e.to_string());
            let expected = if passes {
                Ok(204)
            } else {
                Err(InterimLimit::error_text())
            };
            assert_eq!(status, expected, "{count}");
        }
    }
}
