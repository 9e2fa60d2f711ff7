//! Upgrades (SPDY, WebSocket, any other): dials a dedicated HTTP/1.1 connection to the backend, then copies
//! bytes in both directions until either side ends. Follows `UpgradeAwareHandler` in
//! `apimachinery/pkg/util/proxy/upgradeaware.go`.
//!
//! Entry point: [`tunnel()`]. The copying itself is done in [`crate::proxy::tunnel`].

use super::responses;
use crate::proxy::interim::InterimLimit;
use crate::proxy::transport::{Outgoing, Transport};
use crate::proxy::tunnel;
use crate::request::{Body, FromBackend, Response};
use crate::tasks::TaskGroup;
use http::{HeaderValue, StatusCode, header};
use hyper::client::conn::http1;

/// Response if the client's connection cannot be taken over.
pub(crate) fn not_hijackable() -> Response {
    responses::error(
        StatusCode::SERVICE_UNAVAILABLE,
        "request connection cannot be hijacked: feature not supported",
    )
}

/// Requests the upgrade from the backend and, if it agrees, starts the tunnel in a task of `tasks`.
///
/// # Cancel safety
/// Dropping the future closes the backend's connection. A started tunnel continues until one side ends.
pub(crate) async fn tunnel(
    transport: &Transport,
    authority: &str,
    mut out: Outgoing,
    client: tunnel::ClientSide,
    tasks: &TaskGroup,
) -> Response {
    let unavailable = |text: String| responses::error(StatusCode::SERVICE_UNAVAILABLE, &text);
    let io = match transport.dial_http1(authority).await {
        Ok(io) => io,
        Err(e) => return unavailable(format!("error dialing backend: {e}")),
    };
    let handshake = http1::Builder::new()
        // As Go's client writes header names.
        .title_case_headers(true)
        .handshake::<_, Body>(io)
        .await;
    let (mut sender, connection) = match handshake {
        Ok(both) => both,
        Err(e) => return unavailable(format!("error dialing backend: {e}")),
    };
    // While the group is stopping nothing is spawned; the connection is dropped, and sending fails below.
    tasks.spawn("upgrade connection", async move {
        if let Err(e) = connection.with_upgrades().await {
            tracing::debug!("connection to a backend ended before its upgrade: {e}");
        }
    });
    if let Ok(host) = HeaderValue::from_str(transport.host_name(authority)) {
        out.headers.insert(header::HOST, host);
    }
    // Go's client adds it to a request without one.
    out.headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static("Go-http-client/1.1"));
    let mut request = http::Request::new(out.body);
    *request.method_mut() = out.method;
    *request.headers_mut() = out.headers;
    *request.uri_mut() = http::Uri::from(out.target);
    let limit = InterimLimit::of(&mut request, None);
    let mut response = match limit.enforce(sender.send_request(request)).await {
        Some(Ok(response)) => response,
        Some(Err(e)) => return unavailable(format!("error sending request: {e}")),
        None => return unavailable(format!("error sending request: {}", InterimLimit::error_text())),
    };
    // The client gets the headers as the backend sent them, as with upstream's raw connection copy.
    response.extensions_mut().insert(FromBackend::Verbatim);
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let backend = hyper::upgrade::on(&mut response);
            let started = tunnel::start(client, backend, tasks);
            if !started {
                return unavailable("error dialing backend: the server is shutting down".into());
            }
            response.map(|_| Body::empty())
        }
        status if status.as_u16() >= 400 => tunnel::refusal(response),
        // Neither an upgrade nor a refusal: upstream reports it instead of passing it on.
        status => unavailable(format!("invalid upgrade response: status code {}", status.as_u16())),
    }
}
