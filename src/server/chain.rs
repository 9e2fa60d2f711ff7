//! The handler chain: one list, outermost first, in upstream's order (`DefaultBuildHandlerChain`). Each entry says what
//! it needs to find on a request and what it leaves there; a list in which a need is not met does not build.
//!
//! The chain is built once, at the head of the delegation. Its innermost entry, authorization, is the only place that
//! mints [`Authorized`](crate::request::Authorized) for a request from outside.

use super::filters;
use super::lifecycle::Lifecycle;
use crate::audit::Audit;
use crate::authn::{Authenticator, RequestHeaderNames};
use crate::authz::Authorizer;
use crate::flowcontrol::{FlowSchemas, MaxInFlight};
use crate::request::{Handler, UnprotectedHandler};
use crate::tasks::Signal;
use crate::telemetry::Telemetry;
use http::HeaderName;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What filters leave on a request, and need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// [`crate::request::AuditId`].
    AuditId,
    /// [`crate::request::PathsIncomplete`].
    PathsIncomplete,
    /// [`crate::request::ReceivedAt`].
    ReceivedAt,
    /// `Arc<RequestInfo>`.
    RequestInfo,
    /// [`crate::request::Deadline`].
    Deadline,
    /// [`crate::request::Warnings`].
    Warnings,
    /// [`crate::request::Authenticated`].
    Authenticated,
}

/// Puts a filter around what stands inside of it.
pub type Wrap<Inner> = Box<dyn FnOnce(Arc<Inner>) -> Arc<dyn Handler> + Send>;

/// One entry of the list.
pub struct Filter {
    /// Its name.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Fact],
    /// What it leaves.
    pub leaves: &'static [Fact],
    /// Puts it around the rest of the chain.
    pub wrap: Wrap<dyn Handler>,
}

/// The innermost entry: from handlers to unprotected handlers.
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Fact],
    /// Puts it in front of the director.
    pub wrap: Wrap<dyn UnprotectedHandler>,
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
}

/// Headers by which a front proxy names the caller; they never travel on.
#[derive(Clone, Debug, Default)]
pub struct IdentityHeaders {
    /// Whole names.
    pub names: Vec<HeaderName>,
    /// Prefixes, lower-case.
    pub prefixes: Vec<String>,
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
        }
    }
}

/// A filter needs what no filter outside of it leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct UnmetNeed {
    /// The filter.
    pub filter: &'static str,
    /// What it needs.
    pub fact: Fact,
}

/// The list.
pub struct Chain {
    filters: Vec<Filter>,
    gate: Gate,
}

impl Chain {
    /// Upstream's order. Filters whose feature comes later are absent.
    pub fn new(config: ChainConfig, paths_complete: Vec<Signal>) -> Self {
        let c = config;
        let limits = MaxInFlight::new(
            c.max_requests_in_flight,
            c.max_mutating_requests_in_flight,
            &c.telemetry.inflight,
        );
        let mut filters = vec![
            filters::audit_init::filter(),
            filters::panic_recovery::filter(),
            filters::mux_ready::filter(paths_complete),
            filters::received_at::filter(),
            filters::request_info::filter(),
            filters::http_log::filter(),
            filters::cache_control::filter(),
            filters::wait_group::filter(c.lifecycle),
            filters::deadline::filter(c.request_timeout, c.audit.clone()),
            filters::timeout::filter(c.telemetry.clone()),
            filters::warnings::filter(),
            filters::authentication::filter(
                c.authenticator,
                c.identity_headers,
                c.telemetry.clone(),
                c.audit.clone(),
            ),
        ];
        filters.extend(c.audit.map(filters::audit::filter));
        filters.extend([
            filters::impersonation::filter(c.authorizer.clone(), c.telemetry.impersonation.clone()),
            filters::max_in_flight::filter(limits, c.flow_schemas, c.telemetry.clone()),
        ]);
        Self {
            filters,
            gate: filters::authorization::gate(c.authorizer, c.telemetry),
        }
    }

    /// The names, outermost first.
    pub fn names(&self) -> Vec<&'static str> {
        self.filters.iter().map(|f| f.name).chain([self.gate.name]).collect()
    }

    /// Puts the chain in front of a director.
    ///
    /// # Errors
    /// [`UnmetNeed`].
    pub fn build(self, inner: Arc<dyn UnprotectedHandler>) -> Result<Arc<dyn Handler>, UnmetNeed> {
        let mut facts: Vec<Fact> = Vec::new();
        let entries = self.filters.iter().map(|f| (f.name, f.needs, f.leaves));
        for (filter, needs, leaves) in entries.chain([(self.gate.name, self.gate.needs, &[][..])]) {
            if let Some(fact) = needs.iter().find(|n| !facts.contains(n)) {
                return Err(UnmetNeed { filter, fact: *fact });
            }
            facts.extend(leaves);
        }
        let gate = (self.gate.wrap)(inner);
        Ok(self.filters.into_iter().rev().fold(gate, |inside, f| (f.wrap)(inside)))
    }
}

impl fmt::Display for UnmetNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "filter {} needs {:?}, which no filter outside of it leaves",
            self.filter, self.fact
        )
    }
}

impl std::error::Error for UnmetNeed {}

#[cfg(test)]
mod tests;
