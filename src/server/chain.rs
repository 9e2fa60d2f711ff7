//! The handler chain: filters around filters, in upstream's order (`DefaultBuildHandlerChain`). Each says what it needs to
//! find among a request's facts and what it leaves there; an order in which a need is not met does not compile.
//!
//! The chain is built once, at the head of the delegation, and is one type: a request's way in is one call, and its way
//! out one future. Its innermost entry, authorization, is the only place that mints
//! [`Authorized`](crate::request::Authorized) for a request from outside.

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
use crate::flowcontrol::{FlowSchemas, MaxInFlight};
use crate::request::{Answering, Handler, Request, Response, UnprotectedHandler};
use crate::tasks::Signal;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;

/// One entry of the chain, with those inside of it.
///
/// A filter looks at the request, hands it on, and puts what it does with the answer behind the future it gets
/// (`filters::amend`): with `async` blocks, each would keep the future inside of it twice. The request stays where it is until
/// the innermost filter takes it, or one that has to wait.
pub trait Filter: Send + Sync + 'static {
    /// Answers the request, which is taken: what is left in its place is nobody's.
    ///
    /// # Cancel safety
    /// The future is dropped when the client goes away.
    fn handle<'s>(&'s self, req: &mut Request) -> impl Future<Output = Response> + Send + use<'s, Self>;
}

/// What filters leave among a request's [`Facts`](crate::request::Facts), and need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// `audit_id`
    AuditId,
    /// `paths_incomplete`
    PathsIncomplete,
    /// `received`
    Received,
    /// `info`
    RequestInfo,
    /// `deadline`
    Deadline,
    /// `warnings`
    Warnings,
    /// `caller`
    Caller,
}

/// What a filter is.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Fact],
    /// What it leaves.
    pub leaves: &'static [Fact],
}

/// The order, outermost first.
pub const ORDER: [Entry; 17] = [
    audit_init::ENTRY,
    panic_recovery::ENTRY,
    mux_ready::ENTRY,
    received_at::ENTRY,
    request_info::ENTRY,
    http_log::ENTRY,
    cache_control::ENTRY,
    wait_group::ENTRY,
    deadline::ENTRY,
    timeout::ENTRY,
    warnings::ENTRY,
    authentication::ENTRY,
    audit::ENTRY,
    impersonation::ENTRY,
    max_in_flight::ENTRY,
    compute::ENTRY,
    authorization::ENTRY,
];

const _: () = assert!(
    unmet(&ORDER).is_none(),
    "a filter needs what no filter outside of it leaves"
);

/// The first entry that needs what none before it leaves.
const fn unmet(order: &[Entry]) -> Option<usize> {
    let (mut left, mut at) = (0_u32, 0);
    while at < order.len() {
        if bits(order[at].needs) & !left != 0 {
            return Some(at);
        }
        left |= bits(order[at].leaves);
        at += 1;
    }
    None
}

const fn bits(facts: &[Fact]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < facts.len() {
        bits |= 1 << facts[at] as u32;
        at += 1;
    }
    bits
}

/// What the default chain is made of.
pub struct ChainConfig {
    /// Counters.
    pub telemetry: Telemetry,
    /// Whose requests are counted for the shutdown.
    pub lifecycle: Lifecycle,
    /// Who calls. Anonymous is part of it, where allowed.
    pub authenticator: Arc<dyn Authenticator>,
    /// Headers to remove besides the standard `X-Remote-*`: `--requestheader-*`.
    pub identity_headers: IdentityHeaders,
    /// Whether they may.
    pub authorizer: Arc<dyn Authorizer>,
    /// `--request-timeout`: the longest a request that is not long-running may take.
    pub request_timeout: Duration,
    /// `--max-requests-inflight`; 0 is no limit.
    pub max_requests_in_flight: usize,
    /// `--max-mutating-requests-inflight`; 0 is no limit.
    pub max_mutating_requests_in_flight: usize,
    /// Whose uids answers name; `None` where the server has no such objects.
    pub flow_schemas: Option<Arc<FlowSchemas>>,
    /// What is recorded, and where; `None`: nothing is, and nothing in the chain is there for it.
    pub audit: Option<Arc<Audit>>,
    /// Where work runs that would hold up a reactor; `None`: where it is asked for.
    pub compute: Option<ComputePool>,
    /// Where health and metrics are answered; `None`: where everything is.
    pub reserved: Option<ReservedThread>,
}

pub use crate::request::headers::IdentityHeaders;

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
    /// Upstream's defaults around what has none.
    pub fn new(
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
            flow_schemas: None,
            audit: None,
            compute: None,
            reserved: None,
        }
    }
}

/// Puts the chain in front of a director. Unknown paths are 503 until all of `paths_complete` have fired.
pub fn build(
    config: ChainConfig,
    paths_complete: Vec<Signal>,
    director: Arc<dyn UnprotectedHandler>,
) -> Arc<dyn Handler> {
    Arc::new(Head(nested(config, paths_complete, director)))
}

/// The filters, in [`ORDER`] from the last line to the first.
fn nested(c: ChainConfig, paths_complete: Vec<Signal>, director: Arc<dyn UnprotectedHandler>) -> impl Filter {
    let limits = MaxInFlight::new(
        c.max_requests_in_flight,
        c.max_mutating_requests_in_flight,
        &c.telemetry.inflight,
    );
    let t = c.telemetry;
    let chain = authorization::Authorization::new(director, c.authorizer.clone(), t.clone());
    let chain = compute::Compute::new(chain, c.compute, StallDetector::new(t.clone()));
    let chain = max_in_flight::Limited::new(chain, limits, c.flow_schemas, t.clone());
    let chain = impersonation::Impersonate::new(chain, c.authorizer, t.impersonation.clone());
    let chain = audit::Auditing::new(chain, c.audit.clone());
    let chain = authentication::Authentication::new(chain, c.authenticator, c.identity_headers, &t, c.audit.clone());
    let chain = warnings::Recorder(chain);
    let chain = timeout::Timeout::new(chain, t);
    let chain = deadline::RequestDeadline::new(chain, c.request_timeout, c.audit);
    let chain = wait_group::InFlight::new(chain, c.lifecycle);
    let chain = cache_control::CacheControl(chain);
    let chain = http_log::HttpLog(chain);
    let chain = request_info::Info(chain);
    let chain = received_at::Received(chain);
    let chain = mux_ready::MuxReady::new(chain, paths_complete);
    let chain = panic_recovery::PanicRecovery(chain);
    audit_init::AuditInit::new(chain)
}

/// The chain as a handler.
struct Head<F>(F);

impl<F: Filter> Handler for Head<F> {
    fn handle<'a, 't>(&'a self, mut req: Request) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        Box::pin(self.0.handle(&mut req))
    }
}

#[cfg(test)]
mod tests;
