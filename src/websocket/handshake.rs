//! The opening handshake. Requests are refused as upstream's library does it (`golang.org/x/net/websocket`,
//! `hybi.go` and `server.go`): a status without a Status object, after which the connection closes.

use super::connection::{Limits, WebSocket};
use crate::proxy::headers::wants_upgrade;
use crate::proxy::tunnel::{self, ClientSide};
use crate::request::{Body, FromBackend, Response};
use crate::tasks::TaskGroup;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use std::future::Future;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// True if the client requests WebSocket.
pub(crate) fn requested(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|u| u.as_bytes().eq_ignore_ascii_case(b"websocket")) && wants_upgrade(headers)
}

/// The subprotocols that the client offers, in its order.
pub(crate) fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    // Upstream reads the first line only, as Go's `Header.Get` does.
    let line = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
    let line = line.and_then(|line| line.to_str().ok()).unwrap_or("");
    line.split(',').map(str::trim).filter(|protocol| !protocol.is_empty())
}

/// A valid request for a WebSocket, not yet answered.
pub(crate) struct Handshake {
    client: ClientSide,
    accept: HeaderValue,
}

impl Handshake {
    /// Checks the request and takes the client's side of its connection.
    ///
    /// # Errors
    /// The response that refuses the request.
    pub(crate) fn read(head: &mut Parts) -> Result<Self, Box<Response>> {
        // In the order of upstream's `ReadHandshake` (`hybi.go`), since a request may fail several checks.
        if head.method != Method::GET {
            return Err(Box::new(refusal(StatusCode::METHOD_NOT_ALLOWED, "bad method")));
        }
        let Some(key) = head.headers.get(header::SEC_WEBSOCKET_KEY).filter(|k| !k.is_empty()) else {
            return Err(Box::new(refusal(
                StatusCode::BAD_REQUEST,
                "mismatch challenge/response",
            )));
        };
        let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
        let version = head.headers.get(header::SEC_WEBSOCKET_VERSION);
        if version.is_none_or(|version| version != "13") {
            let mut refusal = refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
            let version = HeaderValue::from_static("13");
            refusal.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, version);
            return Err(Box::new(refusal));
        }
        let (Ok(accept), Some(client)) = (accept, tunnel::client_side_of(head)) else {
            return Err(Box::new(refusal(StatusCode::BAD_REQUEST, "not websocket protocol")));
        };
        Ok(Self { client, accept })
    }

    /// The response that refuses the offered subprotocols or the origin.
    pub(crate) fn forbidden() -> Response {
        refusal(StatusCode::FORBIDDEN, "")
    }

    /// The response that refuses more than one subprotocol where none is chosen from.
    pub(crate) fn ambiguous() -> Response {
        refusal(StatusCode::BAD_REQUEST, "")
    }

    /// Agrees to the upgrade, and runs `serve` on the connection in a task of `tasks`, which is dropped when
    /// the group stops.
    pub(crate) fn accept<F>(
        self,
        protocol: Option<&str>,
        limits: Limits,
        tasks: &TaskGroup,
        serve: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let client = self.client;
        let started = tasks.spawn_until_stopped("websocket", async move {
            // Completes after the response below has been sent.
            match client.opened().await {
                Ok((io, held)) => {
                    serve(WebSocket::over(io, limits).await).await;
                    drop(held);
                }
                Err(e) => tracing::debug!("upgrade failed: {e}"),
            }
        });
        if !started {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.extensions_mut().insert(FromBackend::Verbatim);
        let mut set = |name: HeaderName, value: HeaderValue| response.headers_mut().insert(name, value);
        set(header::UPGRADE, HeaderValue::from_static("websocket"));
        set(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        set(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        // Upstream sends an empty header if no subprotocol was offered, which clients may reject (RFC 6455,
        // 4.1).
        if let Some(protocol) = protocol.and_then(|p| HeaderValue::from_str(p).ok()) {
            set(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        response
    }
}

fn refusal(code: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = code;
    response.extensions_mut().insert(FromBackend::Verbatim);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: Method, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_needs_both_headers() {
        let of = |headers: &[(&str, &str)]| requested(&head(Method::GET, headers).headers);
        assert!(of(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")]));
        assert!(!of(&[("connection", "keep-alive"), ("upgrade", "websocket")]));
        assert!(!of(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]));
    }

    #[test]
    fn offered_protocols_keep_their_order() {
        let head = head(Method::GET, &[("sec-websocket-protocol", "b.k8s.io ,a.k8s.io,")]);
        assert_eq!(offered(&head.headers).collect::<Vec<_>>(), ["b.k8s.io", "a.k8s.io"]);
    }

    #[tokio::test]
    async fn malformed_requests_are_refused_with_gos_messages() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        for (method, headers, code, text) in [
            (Method::POST, vec![key], 405, "bad method"),
            (Method::GET, vec![], 400, "mismatch challenge/response"),
            (Method::GET, vec![key], 400, "missing or bad WebSocket Version"),
            (
                Method::GET,
                vec![key, ("sec-websocket-version", "13")],
                // Not a connection that can be taken over.
                400,
                "not websocket protocol",
            ),
        ] {
            let refused = Handshake::read(&mut head(method, &headers)).err().unwrap();
            assert_eq!(refused.status(), code);
            assert_eq!(refused.into_body().collect(100).await.unwrap(), text);
        }
    }
}
