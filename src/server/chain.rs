//! The handler chain: nested filters in the order of upstream's `DefaultBuildHandlerChain`
//! (`k8s.io/apiserver/pkg/server/config.go`).
//!
//! [`build`] assembles it from filters, whose contract is in [`filter`](super::filter): a nesting that leaves
//! a need of one unmet does not compile. The chain is a single nested type, so a request costs one call and
//! one future, whatever the number of filters. Only the innermost filter, authorization, can create
//! [`Authorized`](crate::request::Authorized).

use super::filter::Filter;
use super::filters::priority_and_fairness::PriorityAndFairness;
use super::filters::{
    audit, audit_init, authentication, authorization, cache_control, compute, deadline, http_log, impersonation,
    max_in_flight, mux_ready, panic_recovery, received_at, request_info, timeout, wait_group, warnings,
};
use super::lifecycle::Lifecycle;
use super::reserved::ReservedThread;
use super::stall::StallDetector;
use crate::audit::Audit;
use crate::authn::{Authenticator, RequestHeaderNames};
use crate::authz::Authorizer;
use crate::flowcontrol::{FlowController, MaxInFlight};
use crate::request::headers::IdentityHeaders;
use crate::request::{Handler, Request, ResponseFuture, UnprotectedHandler};
use crate::tasks::Signal;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;

/// Configuration of the default chain.
pub(crate) struct ChainConfig {
    /// Metrics of the server.
    pub telemetry: Telemetry,
    /// Counts requests in flight, for the shutdown.
    pub lifecycle: Lifecycle,
    /// Authenticates requests; includes anonymous authentication if enabled.
    pub authenticator: Arc<dyn Authenticator>,
    /// Identity headers to remove in addition to the standard `X-Remote-*`, from the `--requestheader-*`
    /// flags.
    pub identity_headers: IdentityHeaders,
    /// Authorizes requests and impersonation.
    pub authorizer: Arc<dyn Authorizer>,
    /// `--request-timeout`: time limit for requests that are not long-running.
    pub request_timeout: Duration,
    /// `--max-requests-inflight`; 0 means no limit. Applies without priority and fairness.
    pub max_requests_in_flight: usize,
    /// `--max-mutating-requests-inflight`; 0 means no limit. Applies without priority and fairness.
    pub max_mutating_requests_in_flight: usize,
    /// Priority and fairness; with `None` the limits of requests in flight apply.
    pub flow_control: Option<Arc<FlowController>>,
    /// The audit policy and backends. With `None` the filters skip all audit work.
    pub audit: Option<Arc<Audit>>,
    /// Pool for computations that would block a runtime thread; with `None` they run in place.
    pub compute: Option<ComputePool>,
    /// Thread that serves health and metrics; with `None` they are served like everything else.
    pub reserved: Option<ReservedThread>,
}

impl From<&RequestHeaderNames> for IdentityHeaders {
    fn from(names: &RequestHeaderNames) -> Self {
        let all = [&names.username, &names.uid, &names.group];
        Self {
            names: all.into_iter().flatten().cloned().collect(),
            prefixes: names.extra_prefix.clone(),
        }
    }
}

impl ChainConfig {
    /// A configuration with upstream's defaults for everything that has one.
    pub(crate) fn new(
        telemetry: Telemetry,
        lifecycle: Lifecycle,
        authenticator: Arc<dyn Authenticator>,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        Self {
            telemetry,
            lifecycle,
            authenticator,
            identity_headers: IdentityHeaders::default(),
            authorizer,
            request_timeout: Duration::from_secs(60),
            max_requests_in_flight: 400,
            max_mutating_requests_in_flight: 200,
            flow_control: None,
            audit: None,
            compute: None,
            reserved: None,
        }
    }
}

/// Puts the chain in front of a director. Until all of `paths_complete` have fired, unknown paths get 503
/// instead of 404.
pub(crate) fn build(
    config: ChainConfig,
    paths_complete: Vec<Signal>,
    director: Arc<dyn UnprotectedHandler>,
) -> Arc<dyn Handler> {
    Arc::new(Head::new(nested(config, paths_complete, director)))
}

/// Nests the filters, innermost first.
fn nested(c: ChainConfig, paths_complete: Vec<Signal>, director: Arc<dyn UnprotectedHandler>) -> impl Filter {
    // Either mechanism limits concurrency, never both, as upstream.
    let limits = c.flow_control.is_none().then(|| {
        MaxInFlight::new(
            c.max_requests_in_flight,
            c.max_mutating_requests_in_flight,
            &c.telemetry.inflight,
        )
    });
    let t = c.telemetry;
    // Each line wraps the ones above it, so a request passes through them from the bottom to the top.
    let chain = authorization::Authorization::new(director, c.authorizer.clone(), t.clone());
    // Inside flow control, which assigns the flow whose queue the request's computations join.
    let chain = compute::Compute::new(chain, c.compute.clone(), StallDetector::new(t.clone()));
    let chain = max_in_flight::MaxInFlightFilter::new(chain, limits, t.clone());
    let chain = PriorityAndFairness::new(chain, c.flow_control, c.request_timeout, t.clone());
    // Outside flow control, so that seats are charged to the impersonated user; inside audit, which records both
    // users.
    let chain = impersonation::Impersonate::new(chain, c.authorizer, t.impersonation.clone(), c.compute);
    let chain = audit::Auditing::new(chain, c.audit.clone());
    let chain = authentication::Authentication::new(chain, c.authenticator, c.identity_headers, &t, c.audit.clone());
    // Outside authentication, which may warn about the credentials.
    let chain = warnings::Recorder(chain);
    let chain = timeout::Timeout::new(chain, t);
    let chain = deadline::RequestDeadline::new(chain, c.request_timeout, c.audit);
    // Outside the timeout: a request that timed out counts as in flight until its 504 has been sent.
    let chain = wait_group::WaitGroupFilter::new(chain, c.lifecycle);
    let chain = cache_control::CacheControl(chain);
    let chain = http_log::HttpLog(chain);
    // Most of the filters above read the request info.
    let chain = request_info::Info(chain);
    let chain = received_at::Received(chain);
    let chain = mux_ready::MuxReady::new(chain, paths_complete);
    let chain = panic_recovery::PanicRecovery(chain);
    // Outermost, so that the response to a panic carries the audit id, too.
    audit_init::AuditInit::new(chain)
}

/// Adapts the outermost filter to [`Handler`].
struct Head<F>(F);

impl<F: Filter> Head<F> {
    fn new(chain: F) -> Self {
        const {
            assert!(
                F::UNMET.is_none(),
                "a filter needs a part of the request context that no outer filter sets"
            );
        }
        Self(chain)
    }
}

impl<F: Filter> Handler for Head<F> {
    fn handle<'a, 't>(&'a self, mut req: Request) -> ResponseFuture<'t>
    where
        'a: 't,
        Self: 't,
    {
        Box::pin(self.0.handle(&mut req))
    }
}

#[cfg(test)]
mod tests;
