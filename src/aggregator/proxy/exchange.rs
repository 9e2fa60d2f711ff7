//! The part of a proxied request that waits: sends it, and turns the backend's response into the client's.

use super::gunzip::Gunzip;
use super::handler::{ProxyShared, Remote};
use super::prepare::Ready;
use super::responses::{self, unreachable_backend, without_request_metrics};
use super::upgrade;
use crate::aggregator::backend_stats::InFlightPermit;
use crate::apimachinery::status::Status;
use crate::proxy::headers::Special;
use crate::proxy::html::{self, Encoding};
use crate::proxy::links::Links;
use crate::proxy::target::Timeouts;
use crate::proxy::transport::{BackendBody, SendError};
use crate::request::{Body, FromBackend, RequestInfo, Response, go_url};
use crate::server::respond;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Upstream's `aggregatedDiscoveryTimeout` for proxied discovery requests.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(5);

impl ProxyShared {
    /// The asynchronous part of a request. Not an `async fn`, whose future would hold `ready` twice.
    pub(super) fn exchange(self: Arc<Self>, remote: Arc<Remote>, ready: Ready) -> impl Future<Output = Response> {
        let Ready {
            transport,
            authority,
            endpoints,
            mut permit,
            in_flight,
            out,
            client,
            informational,
            unpack,
            info,
        } = ready;
        async move {
            // Held until there is a response.
            let _in_flight = in_flight;
            if let Some(client) = client {
                let client = client.holding(permit);
                // Boxed: it contains a handshake of about 8 kB, which would enlarge the future of every
                // request.
                let tunnel = Box::pin(upgrade::tunnel(&transport, &authority, *out, client, &self.tasks));
                let mut response = tunnel.await;
                self.policy.clean_upgrade(response.headers_mut());
                return without_request_metrics(response);
            }
            // The request's own deadline is enforced by the filter `server/filters/timeout`, which drops this
            // future, or the body, and thereby cancels the request at the backend.
            let limit = limit(transport.timeouts(), info.as_deref(), out.target.path());
            let end = limit.map(|limit| Instant::now() + limit);
            let began = std::time::Instant::now();
            permit.send();
            // Pinned in place: awaiting this large future by value would move it.
            let mut sending = pin!(transport.send_to(endpoints.all(), &authority, out, informational.as_ref()));
            let sent = match (end, transport.timeouts().header) {
                (None, None) => sending.await,
                // Boxed: most requests have no such deadline.
                (end, header) => Box::pin(head_by(end, header, sending.as_mut())).await,
            };
            permit.settle();
            let response = match sent {
                // The response's head is here; the permit stays with the body, which is part of the request.
                Ok(response) => {
                    remote
                        .stats
                        .record_response(began.elapsed(), response.status().as_u16());
                    let response = response.map(|body| body.holding(permit));
                    self.finish_response(transport.host_name(&authority), response, unpack, end)
                }
                Err(SendError::Full) => {
                    remote.stats.record_rejection();
                    self.end(info.as_deref(), responses::no_connection(&remote.service))
                }
                Err(why @ SendError::Client(_)) => {
                    // The client's fault: neither counted against the backend nor reported as its failure.
                    let status = Status::bad_request(why.to_string());
                    self.end(info.as_deref(), respond::status(&status, &HeaderMap::new()))
                }
                Err(why) => {
                    let is_late = matches!(why, SendError::Late);
                    let why = why.to_string();
                    // The transport recorded its own failures; of this timeout it saw only that its future
                    // was dropped. The deadline of the whole request is not held against the address.
                    if is_late {
                        transport.record_timeout(&authority, &why);
                    }
                    remote.stats.record_failure(&why);
                    unreachable_backend(&why)
                }
            };
            without_request_metrics(response)
        }
    }

    fn finish_response(
        &self,
        authority: &str,
        response: http::Response<BackendBody<InFlightPermit>>,
        unpack: bool,
        end: Option<Instant>,
    ) -> Response {
        let (mut head, body) = response.into_parts();
        // The extensions that hyper and h2 attach belong to the backend's connection.
        head.extensions.clear();
        let special = Special::of(&head.headers);
        let location = special.location.then(|| head.headers.get(header::LOCATION)).flatten();
        // Upstream looks only at redirects that have a location; others pass.
        let location = location.filter(|l| !l.is_empty());
        let has_location = location.is_some();
        if let Some(location) = location {
            if let Some(why) = location.to_str().ok().and_then(go_url::parse_error) {
                let why = format!("Internal error occurred: error trying to parse Location header: {why}");
                return responses::error(StatusCode::SERVICE_UNAVAILABLE, &why);
            }
            if self.reject_redirects && head.status.is_redirection() {
                return responses::redirect_refused();
            }
            let rewritten = location
                .to_str()
                .ok()
                .and_then(|l| Links::to_backend(authority).rewritten(l));
            if let Some(location) = rewritten.and_then(|l| HeaderValue::try_from(l).ok()) {
                head.headers.insert(header::LOCATION, location);
            }
        }
        let special = self.policy.clean_answer(special, &mut head.headers);
        head.extensions.insert(FromBackend::Proxied);
        // One growth of the header table for what the filters add.
        head.headers.reserve(6);
        // The response's version is that of the client's connection, not of the backend's.
        head.version = http::Version::default();
        // As in Go, a response without a body, such as 304, keeps the headers that describe one.
        let packed = unpack
            && special.content_encoding
            && !http_body::Body::is_end_stream(&body)
            && head
                .headers
                .get(header::CONTENT_ENCODING)
                .is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"gzip"));
        let body = body.with_deadline(end);
        if packed {
            // Decompressed below, which invalidates both.
            head.headers.remove(header::CONTENT_ENCODING);
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let body = match packed {
            true => Body::stream(Gunzip::new(body)),
            false => body.into_body(),
        };
        let is_page = !http_body::Body::is_end_stream(&body) && self.policy.confine(&mut head.headers);
        // As in upstream, the page of a response with `Location` is not searched for links.
        if has_location || !is_page {
            return Response::from_parts(head, body);
        }
        match Encoding::of_page(&head.headers) {
            None => Response::from_parts(head, body),
            Some(encoding) => {
                head.headers.remove(header::CONTENT_LENGTH);
                let body = html::Rewritten::new(body, encoding, Links::to_backend(authority));
                Response::from_parts(head, Body::stream(body))
            }
        }
    }
}

/// The time limit for a whole response: that of discovery, and the APIService's own unless the request is
/// long-running.
fn limit(timeouts: &Timeouts, info: Option<&RequestInfo>, path: &str) -> Option<Duration> {
    let discovery = is_discovery(info, path).then_some(DISCOVERY_LIMIT);
    let has_end = info.is_none_or(|i| !i.is_long_running());
    let own = timeouts.request.filter(|_| has_end);
    match (discovery, own) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Awaits the head of a response until `end`, and for at most `header`. Go has a message for each.
async fn head_by<T>(
    end: Option<Instant>,
    header: Option<Duration>,
    sending: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    let head_end = header.map(|limit| Instant::now() + limit);
    let (until, late) = match (end, head_end) {
        (None, None) => return sending.await,
        (Some(end), Some(head)) if head < end => (head, SendError::Late),
        (None, Some(head)) => (head, SendError::Late),
        (Some(end), _) => (end, SendError::Exchange("context deadline exceeded".into())),
    };
    tokio::time::timeout_at(until, sending).await.unwrap_or(Err(late))
}

/// Upstream's test for discovery: a non-resource path of three segments, in practice
/// `/apis/<group>/<version>`.
fn is_discovery(info: Option<&RequestInfo>, path: &str) -> bool {
    info.is_none_or(|i| !i.is_resource) && path.trim_matches('/').split('/').count() == 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, F: Future>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_an_exchange_stays_small() {
        let size = size_of_future(ProxyShared::exchange);
        assert!(size <= 1040, "{size} bytes");
    }
}
