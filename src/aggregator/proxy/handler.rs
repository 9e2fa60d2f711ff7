//! [`ProxyHandler`]: the request handler of one APIService. Follows `proxyHandler` in
//! `kube-aggregator/pkg/apiserver/handler_proxy.go` and its order of decisions.
//!
//! `prepare` decides whether the request can go to the backend and rewrites it, `exchange` sends it and
//! streams the response back. Connections are left to [`crate::proxy::transport`], header rules to
//! [`crate::proxy::headers`].

use super::identities::Identities;
use super::responses::without_request_metrics;
use crate::aggregator::apiservice::ServiceReference;
use crate::aggregator::backend_stats::BackendStats;
use crate::aggregator::resolver::ServiceResolver;
use crate::aggregator::transports::TransportError;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::transport::Transport;
use crate::request::{Authorized, Request, RequestInfo, Response, ResponseFuture, UnprotectedHandler};
use crate::tasks::TaskGroup;
use crate::telemetry::spans;
use arc_swap::ArcSwap;
use http::StatusCode;
use std::sync::Arc;

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

/// Proxies the requests of one APIService.
pub(crate) struct ProxyHandler {
    pub(super) shared: Arc<ProxyShared>,
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

    fn answered(&self, req: Request, authorized: Authorized) -> ResponseFuture<'static> {
        // Cloned, so that the guard of the swap is gone before the request is handled.
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

impl ProxyShared {
    /// Counts a response of the proxy itself.
    pub(super) fn end(&self, info: Option<&RequestInfo>, response: Response) -> Response {
        self.terminations.record(info, response.status());
        response
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
