//! One request on a dedicated connection, for kubelets, pods and endpoints: requests are rare and streams
//! last long, so a pool would not help. Backends of APIServices use the pool in `proxy/transport`. Entry
//! points: [`send`], [`upgrade`], [`switch`].

use super::dial::{self, Offer};
use super::interim::InterimLimit;
use super::io::TrackedStream;
use super::places::Place;
use super::tcp::{self, DialError};
use super::tls::ClientTls;
use crate::request::{Body, FromBackend, InformationalSender, Response};
use crate::tasks::TaskGroup;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Destination of a request.
#[derive(Clone)]
pub(crate) struct Backend {
    /// `host:port`
    pub authority: String,
    /// TLS configuration; `None` for plain HTTP.
    pub tls: Option<Arc<ClientTls>>,
    /// Limit for establishing the connection, TLS included.
    pub connect_timeout: Duration,
    /// Addresses of the host that the caller has looked up and checked: no other is connected to.
    pub addresses: Option<Arc<[SocketAddr]>>,
    /// Held by each connection to its end.
    pub place: Option<Arc<Place>>,
}

impl Backend {
    /// The same, whose connections hold `place`.
    pub(crate) fn holding(self, place: Arc<Place>) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }
}

/// Why there is no response, in Go's wording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendError {
    /// No connection could be established.
    Dial(String),
    /// The connection failed before the head of the response arrived.
    Exchange(String),
    /// Reading the request's body from the client failed, for which the backend is not to blame.
    Client(String),
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(text) | Self::Exchange(text) | Self::Client(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for BackendError {}

/// Outcome of an upgrade request.
pub(crate) enum Upgrade {
    /// The response for the client: 101 (the tunnel is running), or the backend's refusal.
    Answered(Response),
    /// The backend sent a status that is neither 101 nor an error.
    Unexpected(StatusCode),
}

/// Sends a request whose target consists of path and query, and waits for the head of the response. The
/// connection's task belongs to `tasks` and ends with the response's body. An [`InformationalSender`] among the
/// request's extensions gets the informational responses before it.
///
/// # Errors
/// [`BackendError`]
///
/// # Cancel safety
/// Dropping the future closes the connection. The backend may have processed the request.
pub(crate) async fn send(
    backend: &Backend,
    request: http::Request<Body>,
    tasks: &TaskGroup,
) -> Result<http::Response<hyper::body::Incoming>, BackendError> {
    let mut sender = open(backend, tasks).await?;
    let mut request = with_host(backend, request);
    let client = request.extensions_mut().remove::<InformationalSender>();
    let limit = InterimLimit::of(&mut request, client);
    let Some(sent) = limit.enforce(sender.send_request(request)).await else {
        return Err(BackendError::Exchange(InterimLimit::error_text()));
    };
    sent.map_err(|e| match e.is_user() {
        // The only user error hyper can report here is that of the body we hand in.
        true => BackendError::Client(e.source().map_or_else(|| e.to_string(), ToString::to_string)),
        false => BackendError::Exchange(exchange_error(&e)),
    })
}

/// Requests an upgrade and, if the backend agrees, starts the tunnel.
///
/// # Errors
/// [`BackendError`]
///
/// # Cancel safety
/// Dropping the future closes the backend's connection. A started tunnel continues until one side ends.
pub(crate) async fn upgrade(
    backend: &Backend,
    request: http::Request<Body>,
    client: super::tunnel::ClientSide,
    tasks: &TaskGroup,
) -> Result<Upgrade, BackendError> {
    let mut response = send(backend, request, tasks).await?;
    // The client gets the headers as the backend sent them: upstream copies the raw connection.
    response.extensions_mut().insert(FromBackend::Verbatim);
    Ok(match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let theirs = hyper::upgrade::on(&mut response);
            // The task of the backend's connection has ended with the upgrade.
            let client = client.holding(backend.place.clone());
            if !super::tunnel::start(client, theirs, tasks) {
                return Err(BackendError::Dial("the server is shutting down".to_owned()));
            }
            Upgrade::Answered(response.map(|_| Body::empty()))
        }
        status if status.as_u16() >= 400 => Upgrade::Answered(super::tunnel::refusal(response)),
        status => Upgrade::Unexpected(status),
    })
}

/// Outcome of [`switch`].
pub(crate) enum Upgraded {
    /// The backend's headers, and its connection.
    Switched(HeaderMap, TokioIo<hyper::upgrade::Upgraded>),
    /// Any response but 101.
    Refused(http::Response<hyper::body::Incoming>),
}

/// Requests an upgrade for a protocol that ends at this gateway. The caller holds the backend's place for as long as it
/// uses the connection.
///
/// # Errors
/// [`BackendError`]
///
/// # Cancel safety
/// Dropping the future closes the backend's connection.
pub(crate) async fn switch(
    backend: &Backend,
    request: http::Request<Body>,
    tasks: &TaskGroup,
) -> Result<Upgraded, BackendError> {
    let mut response = send(backend, request, tasks).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Upgraded::Refused(response));
    }
    let io = hyper::upgrade::on(&mut response).await;
    let io = io.map_err(|e| BackendError::Exchange(exchange_error(&e)))?;
    Ok(Upgraded::Switched(
        std::mem::take(response.headers_mut()),
        TokioIo::new(io),
    ))
}

fn with_host(backend: &Backend, mut request: http::Request<Body>) -> http::Request<Body> {
    // The low-level client of hyper adds no `Host` by itself.
    if !request.headers().contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(&backend.authority)
    {
        request.headers_mut().insert(header::HOST, host);
    }
    request
}

async fn open(backend: &Backend, tasks: &TaskGroup) -> Result<http1::SendRequest<Body>, BackendError> {
    let opened = tokio::time::timeout(backend.connect_timeout, connect(backend, tasks)).await;
    match opened {
        Ok(Ok(sender)) => Ok(sender),
        Ok(Err(DialError(why))) => Err(BackendError::Dial(why)),
        Err(_) => Err(BackendError::Dial(format!(
            "dial tcp {}: i/o timeout",
            backend.authority
        ))),
    }
}

async fn connect(backend: &Backend, tasks: &TaskGroup) -> Result<http1::SendRequest<Body>, DialError> {
    let connection = match &backend.addresses {
        Some(addresses) => tcp::connect_to(&backend.authority, addresses).await?,
        None => tcp::connect_starting_at(&backend.authority, 0).await?,
    };
    match &backend.tls {
        // HTTP/1.1 only: requests that come here may be upgrades.
        Some(tls) => {
            let io = dial::secure_tcp(connection, tls, Offer::Http1).await?.io;
            drive(io, backend.place.clone(), tasks).await
        }
        // Its reader pauses: a backend could send faster than this side parses.
        None => drive(TrackedStream::new(connection.tcp), backend.place.clone(), tasks).await,
    }
}

async fn drive(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    place: Option<Arc<Place>>,
    tasks: &TaskGroup,
) -> Result<http1::SendRequest<Body>, DialError> {
    let handshake = http1::Builder::new()
        // As Go's client writes header names.
        .title_case_headers(true)
        .handshake(TokioIo::new(io))
        .await;
    let (sender, connection) = handshake.map_err(|e| DialError(e.to_string()))?;
    let started = tasks.spawn("backend connection", async move {
        if let Err(e) = connection.with_upgrades().await {
            tracing::debug!("connection to a backend ended: {e}");
        }
        drop(place);
    });
    // Without its task the connection would make no progress, and the request would hang.
    if started {
        Ok(sender)
    } else {
        Err(DialError("the server is shutting down".to_owned()))
    }
}

fn exchange_error(e: &hyper::Error) -> String {
    let mut cause = e.source();
    while let Some(c) = cause {
        if let Some(io) = c.downcast_ref::<std::io::Error>() {
            return tcp::system_error("read", io);
        }
        cause = c.source();
    }
    if e.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {e}");
    }
    // Go's error for a connection that ends before the head of the response.
    "EOF".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::places::Places;
    use super::*;
    use crate::request::UserInfo;

    /// A backend without TLS that holds no place.
    fn backend(authority: String) -> Backend {
        Backend {
            authority,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            addresses: None,
            place: None,
        }
    }

    #[tokio::test]
    async fn the_error_names_an_unreachable_backend() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        drop(listener);
        let backend = backend(authority.clone());
        let request = http::Request::new(Body::empty());
        let e = send(&backend, request, &TaskGroup::new("test")).await.unwrap_err();
        assert_eq!(
            e,
            BackendError::Dial(format!("dial tcp {authority}: connect: connection refused"))
        );
    }

    #[tokio::test]
    async fn already_resolved_addresses_are_not_looked_up_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Backend {
            // RFC 6761 reserves `.invalid`: it never resolves.
            addresses: Some([listener.local_addr().unwrap()].into()),
            ..backend("rebinding.invalid:80".to_owned())
        };
        let tasks = TaskGroup::new("test");
        let (opened, accepted) = tokio::join!(open(&backend, &tasks), listener.accept());
        assert!(opened.is_ok() && accepted.is_ok());
    }

    #[tokio::test]
    async fn a_connection_holds_its_permit_until_it_ends() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (user, places) = (UserInfo::system("user", &[]), Places::new(1));
        let backend = backend(listener.local_addr().unwrap().to_string());
        let backend = backend.holding(places.enter(&user).unwrap());
        let tasks = TaskGroup::new("test");
        let opened = tokio::join!(open(&backend, &tasks), listener.accept());
        drop(backend);
        assert!(opened.0.is_ok() && places.enter(&user).is_none());
        drop(opened);
        let soon = tokio::time::Instant::now() + Duration::from_secs(30);
        tasks.shutdown(soon).await.unwrap();
        assert!(places.enter(&user).is_some());
    }

    #[tokio::test]
    async fn a_body_broken_off_by_the_client_is_a_client_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = backend(listener.local_addr().unwrap().to_string());
        let broken = futures_util::stream::iter([Err::<http_body::Frame<bytes::Bytes>, _>("invalid chunk size")]);
        let body = Body::stream(http_body_util::StreamBody::new(broken));
        let request = http::Request::post("/").body(body).unwrap();
        let tasks = TaskGroup::new("test");
        let (sent, _accepted) = tokio::join!(send(&backend, request, &tasks), listener.accept());
        assert_eq!(sent.unwrap_err(), BackendError::Client("invalid chunk size".to_owned()));
    }
}
