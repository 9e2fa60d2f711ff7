//! Delegation: the server behind another server's mux, and the checks and hooks it contributes to the head of
//! the chain (upstream's `DelegationTarget`, `k8s.io/apiserver/pkg/server/genericapiserver.go`).

use super::health::HealthCheck;
use super::lifecycle::{PostStartHook, PreShutdownHook};
use super::mux::DynHandler;
use super::not_found::NotFound;
use crate::tasks::Signal;
use std::sync::Arc;

/// A server that another server delegates to.
pub(crate) trait DelegationTarget: Send + Sync + 'static {
    /// The handler below the filters.
    fn unprotected_handler(&self) -> DynHandler;

    /// The paths that this server and its delegates list in the index, in no particular order.
    fn listed_paths(&self) -> Vec<String>;

    /// The checks, hooks and signals of this server and its delegates, innermost delegate first. The first
    /// call takes them; later calls return nothing.
    fn take_contributions(&self) -> Contributions;
}

/// Checks, hooks and signals that a delegate hands to the head of the chain, which runs them.
#[derive(Default)]
pub(crate) struct Contributions {
    pub health_checks: Vec<HealthCheck>,
    /// Hooks to run once the server serves. Each one is also a health check.
    pub post_start_hooks: Vec<PostStartHook>,
    /// Hooks to run when the shutdown begins.
    pub pre_shutdown_hooks: Vec<PreShutdownHook>,
    /// Unknown paths get 503 instead of 404 until all of these have fired.
    pub paths_complete: Vec<Signal>,
}

impl Contributions {
    /// Appends the contributions of another server.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.health_checks.append(&mut other.health_checks);
        self.post_start_hooks.append(&mut other.post_start_hooks);
        self.pre_shutdown_hooks.append(&mut other.pre_shutdown_hooks);
        self.paths_complete.append(&mut other.paths_complete);
    }
}

/// The end of the delegation chain: serves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EmptyDelegate;

impl DelegationTarget for EmptyDelegate {
    fn unprotected_handler(&self) -> DynHandler {
        Arc::new(NotFound)
    }
    fn listed_paths(&self) -> Vec<String> {
        Vec::new()
    }
    fn take_contributions(&self) -> Contributions {
        Contributions::default()
    }
}
