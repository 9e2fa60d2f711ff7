//! Delegation: what stands behind a server's mux, and what it contributes to the head of the chain.

use super::health::HealthCheck;
use super::lifecycle::{PostStartHook, PreShutdownHook};
use super::mux::DynHandler;
use super::respond;
use crate::apimachinery::status::Status;
use crate::request::{Authorized, Facts, Request, Response, Uncounted, UnprotectedHandler};
use crate::tasks::Signal;
use async_trait::async_trait;
use std::sync::Arc;

/// A server that another server hands over to.
pub trait DelegationTarget: Send + Sync + 'static {
    /// The way in, below the filters.
    fn unprotected_handler(&self) -> DynHandler;

    /// The listed paths of this server and of those behind it, in no particular order.
    fn listed_paths(&self) -> Vec<String>;

    /// Checks, hooks and signals of this server and of those behind it, the last in the chain first. The first call
    /// takes them.
    fn take_contributions(&self) -> Contributions;
}

/// What a server brings along for the head of the chain to run.
#[derive(Default)]
pub struct Contributions {
    /// Health checks.
    pub health_checks: Vec<HealthCheck>,
    /// Hooks to run once the server serves; each is a health check, too.
    pub post_start_hooks: Vec<PostStartHook>,
    /// Hooks to run when shutdown begins.
    pub pre_shutdown_hooks: Vec<PreShutdownHook>,
    /// Until all have fired, unknown paths are 503 instead of 404.
    pub paths_complete: Vec<Signal>,
}

impl Contributions {
    /// Appends another server's.
    pub fn append(&mut self, mut other: Self) {
        self.health_checks.append(&mut other.health_checks);
        self.post_start_hooks.append(&mut other.post_start_hooks);
        self.pre_shutdown_hooks.append(&mut other.pre_shutdown_hooks);
        self.paths_complete.append(&mut other.paths_complete);
    }
}

/// The end of the chain: nothing is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyDelegate;

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

/// The terminal handler: plain 404, or 503 where the request came before all paths were installed
/// (upstream's `util/notfoundhandler`; facts 1.10 and 1.11).
#[derive(Clone, Copy, Debug, Default)]
pub struct NotFound;

#[async_trait]
impl UnprotectedHandler for NotFound {
    async fn serve(&self, req: Request, _: Authorized) -> Response {
        let mut response = match Facts::of(&req).paths_incomplete {
            true => respond::status(
                &Status::service_unavailable(
                    "the request has been made before all known HTTP paths have been installed, please try again",
                )
                .with_retry_after(5),
                req.headers(),
            ),
            false => respond::not_found_text(),
        };
        response.extensions_mut().insert(Uncounted);
        response
    }
}
