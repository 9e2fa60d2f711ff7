//! `portforward` over WebSocket: the bytes of a SPDY connection to the kubelet, in binary messages (upstream:
//! `apiserver/pkg/util/proxy/streamtunnel.go`). Entry points: [`applies`] and [`answer`].

use super::outcome::PROTOCOL;
use super::relay;
use crate::apimachinery::status::{Result, Status};
use crate::proxy::backend::{self, Backend, Upgraded};
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::{headers, tunnel};
use crate::request::{Body, FromBackend, Request, Response};
use crate::tasks::TaskGroup;
use crate::websocket::{self, Handshake, Limits, Message, PING_INTERVAL, WebSocket};
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// The prefix of tunnels' subprotocols; the SPDY protocol follows.
const PREFIX: &str = "SPDY/3.1+";

/// Maximum bytes of the kubelet's data in one message.
const PIECE: usize = 32 << 10;

/// Time limit for closing each of the two connections.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    websocket::offered(headers)
        .filter_map(|offered| offered.strip_prefix(PREFIX))
        .filter(|protocol| protocol.ends_with(".k8s.io"))
}

/// Whether the client offers a tunnel.
pub(super) fn applies(req: &Request) -> bool {
    websocket::requested(req.headers()) && offered(req.headers()).next().is_some()
}

/// Opens the SPDY connection and, if the kubelet agrees, the tunnel to it. Its refusal is passed on.
///
/// # Errors
/// 500 if the kubelet cannot be reached or does not speak SPDY.
pub(super) async fn answer(
    req: Request,
    kubelet: &Backend,
    target: Uri,
    (tasks, policy): (&TaskGroup, &ProxyPolicy),
) -> Result<Response> {
    let (mut head, _) = req.into_parts();
    let protocols: Vec<HeaderValue> = offered(&head.headers).filter_map(|p| p.parse().ok()).collect();
    let handshake = match Handshake::read(&mut head) {
        Ok(handshake) => handshake,
        Err(refused) => return Ok(*refused),
    };
    let mut out = relay::outgoing(Request::from_parts(head, Body::empty()), target, policy)?;
    // A WebSocket handshake is a GET; clients of SPDY upgrade by POST.
    *out.method_mut() = Method::POST;
    headers::keep_identity_end_to_end(out.headers_mut());
    // These belong to the client's handshake. The versions it offers are appended below, without their
    // prefix.
    for name in [
        header::SEC_WEBSOCKET_PROTOCOL,
        header::SEC_WEBSOCKET_KEY,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_EXTENSIONS,
        PROTOCOL,
    ] {
        out.headers_mut().remove(name);
    }
    let spdy = HeaderValue::from_static("SPDY/3.1");
    out.headers_mut().insert(header::UPGRADE, spdy);
    for protocol in protocols {
        out.headers_mut().append(PROTOCOL, protocol);
    }
    let (theirs, io) = match backend::switch(kubelet, out, tasks).await {
        Ok(Upgraded::Switched(headers, io)) => (headers, io),
        Ok(Upgraded::Refused(response)) => {
            let mut refusal = tunnel::refusal(response);
            refusal.extensions_mut().insert(FromBackend::Verbatim);
            policy.clean_upgrade(refusal.headers_mut());
            return Ok(refusal);
        }
        Err(why) => return Err(Status::raw_error(format!("error dialing backend: {why}"))),
    };
    if !is_spdy(&theirs) {
        let why = "unable to upgrade: missing upgrade headers in response";
        return Err(Status::raw_error(why));
    }
    let chosen = theirs.get(PROTOCOL).and_then(|p| p.to_str().ok());
    let chosen = chosen.map(|protocol| format!("{PREFIX}{}", protocol.trim()));
    let place = kubelet.place.clone();
    let serve = async move |socket: WebSocket| {
        copy(socket, io).await;
        // Moved into the task, so that the connection counts until both sides are closed.
        drop(place);
    };
    Ok(handshake.accept(chosen.as_deref(), Limits::STREAM, tasks, serve))
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|u| u.to_str().ok()).unwrap_or("");
    headers::wants_upgrade(headers) && upgrade.to_ascii_lowercase().contains("spdy/3.1")
}

/// Copies both ways until either side ends, and closes both connections.
async fn copy(socket: WebSocket, io: impl AsyncRead + AsyncWrite) {
    let (mut read, mut write) = tokio::io::split(io);
    let (mut sender, mut receiver) = socket.split();
    let inward = async {
        // A text message violates the protocol.
        while let Some(Message::Binary(bytes)) = receiver.next().await {
            if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let mut buffer = BytesMut::new();
        loop {
            // A read into a full buffer returns 0, which would be taken for the end.
            buffer.reserve(PIECE);
            let sent = match timeout(PING_INTERVAL, read.read_buf(&mut buffer)).await {
                Ok(Ok(1..)) => sender.send(Message::Binary(buffer.split().freeze())).await,
                Ok(Ok(0) | Err(_)) => return,
                Err(_) => sender.ping().await,
            };
            if sent.is_err() {
                return;
            }
        }
    };
    // Either side may end first. The other direction can be waiting for a peer that reads nothing, so it is
    // not waited for.
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
    let client = async {
        // Upstream closes with code 1000, whatever the reason.
        sender.close().await;
        // A socket that is closed with unread bytes is reset, and the client could lose what it has not read
        // yet.
        while receiver.next().await.is_some() {}
    };
    let _ = tokio::join!(timeout(CLOSE_LIMIT, client), timeout(CLOSE_LIMIT, write.shutdown()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tunnels_of_kubernetes_protocols_are_offered() {
        let mut headers = HeaderMap::new();
        let offers = "v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io, SPDY/3.1+other";
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offers));
        assert_eq!(offered(&headers).collect::<Vec<_>>(), ["portforward.k8s.io"]);
    }

    #[test]
    fn the_response_must_switch_to_spdy() {
        let of = |connection: &'static str, upgrade: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONNECTION, HeaderValue::from_static(connection));
            headers.insert(header::UPGRADE, HeaderValue::from_static(upgrade));
            is_spdy(&headers)
        };
        assert!(of("Upgrade", "SPDY/3.1"));
        assert!(!of("Upgrade", "websocket") && !of("close", "SPDY/3.1"));
    }
}
