//! Tracing spans, with the attribute names of OpenTelemetry's semantic conventions.
//!
//! ```text
//! connection                        network.peer.*, network.protocol.*, from accept to close
//! └─ request                        http.request.method, url.path, enduser.id …, until the response head
//!    ├─ proxy                       server.address …, one per request to a backend, with its retries
//!    └─ storage                     db.system.name …, one per call of the embedded engine or of etcd
//! ```
//!
//! All have the level debug and [`TARGET`], so that `--vmodule=spans=4` adds them to log lines without more
//! lines, and an embedding program can export them with a layer of its own. Without a listener each costs one
//! comparison: `tracing` then evaluates no fields, and a disabled span enters nothing.
//!
//! Queries, headers, bodies, object names outside of the path, and storage keys are not recorded as attributes:
//! they may be secret.

use super::Operation;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::net::SocketAddr;
use tracing::field::Empty;
use tracing::{Instrument as _, Level, Span, debug_span};

/// The target of all spans.
pub const TARGET: &str = "torana::spans";

/// The span of an accepted connection.
pub(crate) fn connection(peer: SocketAddr) -> Span {
    debug_span!(
        target: TARGET,
        "connection",
        network.transport = "tcp",
        network.peer.address = %peer.ip(),
        network.peer.port = peer.port(),
        // Known only after the handshake; a field that is not declared here could not be recorded then.
        network.protocol.name = Empty,
        network.protocol.version = Empty,
    )
}

/// Records the protocol on the current span, the connection's.
pub(crate) fn record_protocol(is_http2: bool) {
    if is_enabled() {
        let version = if is_http2 { "2" } else { "1.1" };
        Span::current()
            .record("network.protocol.name", "http")
            .record("network.protocol.version", version);
    }
}

/// The span of a request, below that of its connection.
pub(crate) fn request<B>(request: &http::Request<B>) -> Span {
    debug_span!(
        target: TARGET,
        "request",
        http.request.method = %request.method(),
        url.path = request.uri().path(),
        // The only scheme that is served.
        url.scheme = "https",
        enduser.id = Empty,
        http.response.status_code = Empty,
    )
}

/// Records the authenticated user on the current span, the request's.
pub(crate) fn record_user(name: &str) {
    if is_enabled() {
        Span::current().record("enduser.id", name);
    }
}

/// The span of a request to a backend at `host:port`, for the Service `namespace/name`.
pub(crate) fn proxy(method: &http::Method, path: &str, authority: &str, service: &str) -> Span {
    // Checked here, because splitting the authority would cost something before the macro could skip it.
    if !is_enabled() {
        return Span::none();
    }
    let (address, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    debug_span!(
        target: TARGET,
        "proxy",
        http.request.method = %method,
        url.path = path,
        // OpenTelemetry's addresses of IPv6 have no brackets.
        server.address = address.trim_start_matches('[').trim_end_matches(']'),
        server.port = port.parse::<u16>().ok(),
        k8s.service.name = service,
        http.response.status_code = Empty,
    )
}

/// The span of a call to a storage engine.
pub(crate) fn storage(system: &'static str, operation: Operation, prefix: &str) -> Span {
    debug_span!(
        target: TARGET,
        "storage",
        db.system.name = system,
        db.operation.name = operation.name(),
        db.collection.name = prefix,
    )
}

/// Runs an exchange in its span, and records the status code of its response.
pub(crate) async fn exchange<B>(span: Span, response: impl Future<Output = http::Response<B>>) -> http::Response<B> {
    let response = response.instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    response
}

/// Keeps the current span for work that continues in another task or thread.
pub(crate) fn carried<T: 'static>(work: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
    match is_enabled() {
        // Not boxed again without a listener: writes are hot.
        true => work.in_current_span().boxed(),
        false => work,
    }
}

fn is_enabled() -> bool {
    tracing::enabled!(target: TARGET, Level::DEBUG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_not_built_without_a_subscriber() {
        let made = http::Request::get("/api").body(()).unwrap();
        let spans = [
            connection(([127, 0, 0, 1], 1).into()),
            request(&made),
            proxy(made.method(), "/api", "a:1", "ns/a"),
            storage("etcd", Operation::Get, "/registry/pods/"),
        ];
        assert!(spans.iter().all(Span::is_disabled));
    }
}
