//! [`Ready`]: everything about a proxied request that needs no waiting: the checks, in upstream's order, the
//! address, the permit, and the request as the backend gets it.

use super::handler::{ProxyHandler, Remote};
use super::responses::{self, unreachable_backend};
use super::upgrade;
use crate::aggregator::apiservice::ServiceReference;
use crate::aggregator::backend_stats::InFlightPermit;
use crate::aggregator::resolver::Endpoints;
use crate::proxy::headers::Special;
use crate::proxy::hops::{HOPS, InFlightGuard};
use crate::proxy::transport::{Outgoing, Transport};
use crate::proxy::tunnel::{self, ClientSide};
use crate::proxy::{headers, url};
use crate::request::{InformationalSender, Request, RequestContext, RequestInfo, Response, UserInfo};
use crate::server::respond;
use crate::telemetry::spans;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, header};
use std::borrow::Cow;
use std::sync::Arc;

/// Exempt from the backend's request limits, as from the server's own.
const MASTERS: &str = "system:masters";

/// A request that is ready to be sent.
pub(super) struct Ready {
    pub transport: Arc<Transport>,
    /// The address tried first.
    pub authority: Arc<str>,
    pub endpoints: Endpoints,
    pub permit: InFlightPermit,
    pub in_flight: Option<InFlightGuard>,
    pub out: Box<Outgoing>,
    /// Present if the request asks for an upgrade.
    pub client: Option<ClientSide>,
    pub informational: Option<InformationalSender>,
    /// The proxy requested gzip although the client did not, so the response must be decompressed.
    pub unpack: bool,
    pub info: Option<Arc<RequestInfo>>,
}

impl Ready {
    pub(super) fn span(&self, service: &ServiceReference) -> tracing::Span {
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

impl ProxyHandler {
    /// Does everything that needs no waiting. The error is the response to send.
    pub(super) fn prepared(&self, remote: &Remote, req: Request, user: &Arc<UserInfo>) -> Result<Ready, Box<Response>> {
        let info = RequestInfo::of(&req).cloned();
        let end = |response| Box::new(self.shared.end(info.as_deref(), response));
        let special = Special::of(req.headers());
        let hops = &self.shared.policy.hops;
        // Loop detection comes first: a looping request must be reported as one, even if it has other faults.
        let hop = match special.hops {
            false => hops.first(req.headers()),
            true => match hops.next_value(req.headers()) {
                Ok(next_value) => next_value,
                Err(status) => return Err(end(respond::status(&status, req.headers()))),
            },
        };
        let audit_id = RequestContext::of(&req).audit_id.as_ref();
        // The handler's address stands for the backend: a request may pass this gateway twice on its way
        // through two of them.
        let in_flight = audit_id.and_then(|id| hops.begin(id.header(), std::ptr::from_ref(self).addr()));
        // A client may reuse an audit ID for concurrent requests; a request with a hop header comes from a
        // proxy, which does not.
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
        // Without a name, the backend would take the request for the gateway's own.
        if user.name.is_empty() {
            return Err(end(responses::error(StatusCode::INTERNAL_SERVER_ERROR, "missing user")));
        }
        let endpoints = match self.shared.resolver.endpoints(&remote.service) {
            Ok(endpoints) => endpoints,
            Err(why) => {
                // Logged only: upstream's response does not state the reason either.
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
        // Strip before adding: `Connection` may name any header, so it could remove headers that are added
        // below.
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
        // Upstream sets these headers and asks for gzip in its round tripper, which upgrades bypass.
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

/// The request target for the backend, unchanged if it is already canonical.
fn rewritten(uri: &http::Uri) -> Option<PathAndQuery> {
    let original = uri.path_and_query()?;
    // The common case costs no allocation.
    if uri.query().is_none() && matches!(url::canonical_path(uri.path()), Some(Cow::Borrowed(_))) {
        return Some(original.clone());
    }
    let canonical = url::canonical_path_and_query(uri);
    if canonical == original.as_str() {
        return Some(original.clone());
    }
    PathAndQuery::try_from(canonical).ok()
}
