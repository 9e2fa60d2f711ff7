//! The request handler of one APIService: decides whether the request can go to the backend, rewrites it, and streams
//! the response back. Follows `proxyHandler` in `kube-aggregator/pkg/apiserver/handler_proxy.go` and its order of
//! decisions.
//!
//! Entry point: [`ProxyHandler`]. Connections are left to [`crate::proxy::transport`], header rules to
//! [`headers`].

use super::gunzip::Gunzip;
use super::identities::Identities;
use super::responses;
use super::upgrade;
use crate::aggregator::apiservice::ServiceReference;
use crate::aggregator::backend_stats::{BackendStats, InFlightPermit};
use crate::aggregator::resolver::{Endpoints, ServiceResolver};
use crate::aggregator::transports::TransportError;
use crate::apimachinery::status::Status;
use crate::proxy::headers::Special;
use crate::proxy::hops::{HOPS, InFlightGuard};
use crate::proxy::html::{self, Encoding};
use crate::proxy::links::Links;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::target::Timeouts;
use crate::proxy::transport::{BackendBody, Outgoing, SendError, Transport};
use crate::proxy::tunnel::{self, ClientSide};
use crate::proxy::{headers, url};
use crate::request::{
    Authorized, Body, FromBackend, InformationalSender, NotInRequestMetrics, Request, RequestContext, RequestInfo,
    Response, ResponseFuture, UnprotectedHandler, UserInfo, go_url,
};
use crate::server::respond;
use crate::tasks::TaskGroup;
use crate::telemetry::spans;
use arc_swap::ArcSwap;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Exempt from the backend's request limits, as from the server's own.
const MASTERS: &str = "system:masters";
/// Upstream's `aggregatedDiscoveryTimeout` for proxied discovery requests.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(5);

/// Counts responses of the proxy itself in `apiserver_request_terminations_total{component="aggregator"}`.
pub(crate) trait TerminationMetrics: Send + Sync + 'static {
    /// Called for each request that the proxy ended itself, with the status code it sent.
    fn record(&self, info: Option<&RequestInfo>, code: StatusCode);
}

/// Dependencies that all proxy handlers of a gateway share.
pub(crate) struct ProxyShared {
    /// Serves requests of local APIServices: the next server's director.
    pub delegate: Arc<dyn UnprotectedHandler>,
    /// Resolves services to addresses.
    pub resolver: Arc<dyn ServiceResolver>,
    /// Owns the tasks of connections and tunnels.
    pub tasks: TaskGroup,
    /// Cache of the identity headers sent to backends.
    pub identities: Identities,
    /// Refuse redirects (502) instead of passing them on.
    pub reject_redirects: bool,
    /// Counts the proxy's own responses.
    pub terminations: Arc<dyn TerminationMetrics>,
    /// Header, loop-detection and HTML rules for proxied requests.
    pub policy: ProxyPolicy,
}

/// Current settings of a handler. Immutable: a change of the APIService replaces them as a whole.
pub(crate) enum Settings {
    /// Served by the next server in the chain.
    Local,
    /// Served by a backend.
    Remote(Arc<Remote>),
}

/// Settings for an APIService with a backend.
pub(crate) struct Remote {
    /// The service that the APIService names.
    pub service: ServiceReference,
    /// Whether the `Available` condition lets traffic through.
    pub available: bool,
    /// The connections, or why there can be none (for example, a CA bundle that does not parse).
    pub transport: Result<Arc<Transport>, TransportError>,
    /// Limits and statistics of the backend.
    pub stats: Arc<BackendStats>,
}

/// A request that is ready to be sent.
struct Ready {
    transport: Arc<Transport>,
    /// The address tried first.
    authority: Arc<str>,
    endpoints: Endpoints,
    permit: InFlightPermit,
    in_flight: Option<InFlightGuard>,
    out: Box<Outgoing>,
    /// Present if the request asks for an upgrade.
    client: Option<ClientSide>,
    informational: Option<InformationalSender>,
    /// The proxy requested gzip although the client did not, so the response must be decompressed.
    unpack: bool,
    info: Option<Arc<RequestInfo>>,
}

impl Ready {
    fn span(&self, service: &ServiceReference) -> tracing::Span {
        let (method, path) = (&self.out.method, self.out.target.path());
        spans::proxy(method, path, &self.authority, &service.name)
    }
}

/// A request rewritten for the backend.
struct Rewritten {
    out: Box<Outgoing>,
    client: Option<ClientSide>,
    informational: Option<InformationalSender>,
    unpack: bool,
}

/// Proxies the requests of one APIService.
pub(crate) struct ProxyHandler {
    shared: Arc<ProxyShared>,
    settings: ArcSwap<Settings>,
}

impl ProxyHandler {
    /// Creates a handler with initial settings.
    pub(crate) fn new(shared: Arc<ProxyShared>, settings: Settings) -> Self {
        Self {
            shared,
            settings: ArcSwap::from_pointee(settings),
        }
    }

    /// Replaces the settings; requests in flight keep the old ones.
    pub(crate) fn set(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }

    #[cfg(test)]
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Does everything that needs no waiting. The error is the response to send.
    fn prepared(&self, remote: &Remote, req: Request, user: &Arc<UserInfo>) -> Result<Ready, Box<Response>> {
        let info = RequestInfo::of(&req).cloned();
        let end = |response| Box::new(self.shared.end(info.as_deref(), response));
        let special = Special::of(req.headers());
        let hops = &self.shared.policy.hops;
        // Loop detection comes first: a looping request must be reported as one, whatever else is wrong with it.
        let hop = match special.hops {
            false => hops.first(req.headers()),
            true => match hops.next_value(req.headers()) {
                Ok(next_value) => next_value,
                Err(status) => return Err(end(respond::status(&status, req.headers()))),
            },
        };
        let audit_id = RequestContext::of(&req).audit_id.as_ref();
        let in_flight = audit_id.and_then(|id| hops.begin(id.header(), std::ptr::from_ref(self).addr()));
        // A client may reuse an audit ID for concurrent requests; a request with a hop header comes from a proxy, which
        // does not.
        if in_flight.is_none() && audit_id.is_some() && hop.is_some() {
            return Err(end(respond::status(&hops.loop_detected(), req.headers())));
        }
        if !remote.available {
            return Err(end(responses::unavailable()));
        }
        let transport = match &remote.transport {
            Ok(transport) => transport,
            Err(e) => {
                let text = e.to_string();
                return Err(end(responses::error(StatusCode::INTERNAL_SERVER_ERROR, &text)));
            }
        };
        if user.name.is_empty() {
            return Err(end(responses::error(StatusCode::INTERNAL_SERVER_ERROR, "missing user")));
        }
        let endpoints = match self.shared.resolver.endpoints(&remote.service) {
            Ok(endpoints) => endpoints,
            Err(why) => {
                tracing::debug!(service = ?remote.service, "cannot resolve: {why}");
                return Err(end(responses::unavailable()));
            }
        };
        let long_running = info.as_ref().is_some_and(|i| i.is_long_running());
        let permit = match remote.stats.enter(long_running, &user.name, || user.in_group(MASTERS)) {
            Ok(permit) => permit,
            Err(full) => return Err(end(responses::too_many(full, &remote.service, req.headers()))),
        };
        // From here on, an early return drops and so releases the permit.
        let authority = transport.choose(endpoints.all()).clone();
        let Rewritten {
            out,
            client,
            informational,
            unpack,
        } = self.outgoing(req, (special, hop), user, transport.host_name(&authority))?;
        Ok(Ready {
            transport: transport.clone(),
            authority,
            endpoints,
            permit,
            in_flight,
            out,
            client,
            informational,
            unpack,
            info,
        })
    }

    /// Rewrites the request for the backend with this host name.
    fn outgoing(
        &self,
        mut req: Request,
        (special, hop): (Special, Option<HeaderValue>),
        user: &Arc<UserInfo>,
        host: &str,
    ) -> Result<Rewritten, Box<Response>> {
        let upgrading = special.connection && headers::wants_upgrade(req.headers());
        let client = upgrading.then(|| tunnel::client_side(&mut req)).flatten();
        if upgrading && client.is_none() {
            return Err(upgrade::not_hijackable().into());
        }
        let Some(target) = rewritten(req.uri()) else {
            return Err(responses::error(StatusCode::BAD_REQUEST, "invalid request path").into());
        };
        // Seats are for work done here: a watch that another server initializes needs none (upstream's
        // `RequestDelegated`).
        RequestContext::of_mut(&mut req).initializing = None;
        let (mut head, body) = req.into_parts();
        if special.host {
            head.headers.remove(header::HOST);
        }
        // Strip before adding: `Connection` may name any header, so it could remove headers that are added below.
        let special = match &client {
            Some(_) => {
                headers::keep_identity_end_to_end(&mut head.headers);
                special
            }
            None => special.strip_request(&mut head.headers),
        };
        // One growth of the header table for everything that is added below.
        head.headers.reserve(11 + user.extra.len());
        if let Err(headers::InvalidValue(name)) = self.shared.identities.state(&mut head.headers, user) {
            let why = format!("net/http: invalid header field value for {name:?}");
            return Err(unreachable_backend(&why).into());
        }
        let context = RequestContext::of(&head);
        let (address, informational) = (context.remote.map(|a| a.0.ip()), InformationalSender::of(context));
        if let Some(id) = &context.audit_id {
            head.headers.insert(headers::AUDIT_ID, id.header().clone());
        }
        match hop {
            Some(hop) => drop(head.headers.insert(HOPS, hop)),
            None if special.hops => drop(head.headers.remove(HOPS)),
            None => {}
        }
        headers::forwarded_for(&mut head.headers, address);
        let mut unpack = false;
        if client.is_none() {
            if let Ok(host) = HeaderValue::from_str(host) {
                headers::forwarded_target(&mut head.headers, host, target.path());
            }
            unpack = special.ask_for_gzip(&head.method, &mut head.headers);
        }
        Ok(Rewritten {
            informational,
            out: Box::new(Outgoing {
                method: head.method,
                target,
                headers: head.headers,
                body,
            }),
            client,
            unpack,
        })
    }
}

impl ProxyShared {
    /// Counts a response of the proxy itself.
    fn end(&self, info: Option<&RequestInfo>, response: Response) -> Response {
        self.terminations.record(info, response.status());
        response
    }

    /// The asynchronous part of a request. Not an `async fn`, whose future would hold `ready` twice.
    fn exchange(self: Arc<Self>, remote: Arc<Remote>, ready: Ready) -> impl Future<Output = Response> {
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
                // Boxed: it contains a handshake of about 8 kB, which would enlarge the future of every request.
                let tunnel = Box::pin(upgrade::tunnel(&transport, &authority, *out, client, &self.tasks));
                let mut response = tunnel.await;
                self.policy.clean_upgrade(response.headers_mut());
                return without_request_metrics(response);
            }
            // The request's own deadline is enforced by the filter `server/filters/timeout`, which drops this future,
            // or the body, and thereby cancels the request at the backend.
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
                    let status = Status::bad_request(why.to_string());
                    self.end(info.as_deref(), respond::status(&status, &HeaderMap::new()))
                }
                Err(why) => {
                    let is_late = matches!(why, SendError::Late);
                    let why = why.to_string();
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
        head.extensions.clear();
        let special = Special::of(&head.headers);
        let location = special.location.then(|| head.headers.get(header::LOCATION)).flatten();
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
        let packed = unpack
            && special.content_encoding
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

impl UnprotectedHandler for ProxyHandler {
    fn serve<'t>(self: Arc<Self>, req: Request, authorized: Authorized) -> ResponseFuture<'t>
    where
        Self: 't,
    {
        self.answered(req, authorized)
    }
}

impl ProxyHandler {
    fn answered(&self, req: Request, authorized: Authorized) -> ResponseFuture<'static> {
        let remote = match &**self.settings.load() {
            Settings::Local => None,
            Settings::Remote(remote) => Some(remote.clone()),
        };
        let Some(remote) = remote else {
            return self.shared.delegate.clone().serve(req, authorized);
        };
        match self.prepared(&remote, req, authorized.user()) {
            Ok(ready) => {
                let span = ready.span(&remote.service);
                let response = self.shared.clone().exchange(remote, ready);
                match span.is_disabled() {
                    true => Box::pin(response),
                    false => Box::pin(spans::exchange(span, response)),
                }
            }
            Err(response) => Box::pin(std::future::ready(without_request_metrics(*response))),
        }
    }
}

/// Marks the proxy's own responses as counted already. Backends' responses are marked by their origin.
fn without_request_metrics(mut response: Response) -> Response {
    if FromBackend::of(&response).is_none() {
        response.extensions_mut().insert(NotInRequestMetrics);
    }
    response
}

fn unreachable_backend(why: &str) -> Response {
    responses::error(
        StatusCode::SERVICE_UNAVAILABLE,
        &format!("error trying to reach service: {why}"),
    )
}

/// The request target for the backend, unchanged if it is already canonical.
fn rewritten(uri: &http::Uri) -> Option<PathAndQuery> {
    let original = uri.path_and_query()?;
    if uri.query().is_none() && matches!(url::canonical_path(uri.path()), Some(Cow::Borrowed(_))) {
        return Some(original.clone());
    }
    let canonical = url::canonical_path_and_query(uri);
    if canonical == original.as_str() {
        return Some(original.clone());
    }
    PathAndQuery::try_from(canonical).ok()
}

/// The time limit for a whole response: that of discovery, and the APIService's own unless the request is long-running.
fn limit(timeouts: &Timeouts, info: Option<&RequestInfo>, path: &str) -> Option<Duration> {
    let discovery = is_discovery(info, path).then_some(DISCOVERY_LIMIT);
    let has_end = info.is_none_or(|i| !i.is_long_running());
    let own = timeouts.request.filter(|_| has_end);
    match (discovery, own) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Awaits the head of a response until `end`, and for at most `header`. Go's error texts differ for the two.
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

/// Upstream's test for discovery: a non-resource path of three segments, in practice `/apis/<group>/<version>`.
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
        assert!(size <= 1024, "{size} bytes");
    }
}
