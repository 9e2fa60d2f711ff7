//! The director dispatches a request, by its decoded path alone, to the restful container or to the path mux
//! (upstream's `director` in `k8s.io/apiserver/pkg/server/handler.go`).

use super::container::{Claims, Container};
use super::mux::{DynHandler, PathRecorderMux};
use super::respond;
use crate::request::{Authorized, Request, ResponseFuture, UnprotectedHandler};
use std::sync::Arc;

/// The handler of a path: a web service or the mux.
pub(crate) enum Target {
    /// A web service claims the path.
    WebService(DynHandler),
    /// No web service does: the mux handles it, and falls back to the delegate.
    Mux,
}

/// Chooses the target of a path. A pure function of the claim table.
pub(crate) fn route(claims: &Claims, path: &str) -> Target {
    match claims.claimant(path) {
        Some(ws) => Target::WebService(ws.handler.clone()),
        None => Target::Mux,
    }
}

/// The entry handler of one server, below the filters.
pub(crate) struct Director {
    container: Arc<Container>,
    mux: Arc<PathRecorderMux>,
}

impl Director {
    /// A director over this container and mux.
    pub(crate) fn new(container: Arc<Container>, mux: Arc<PathRecorderMux>) -> Self {
        Self { container, mux }
    }
}

impl UnprotectedHandler for Director {
    fn serve<'t>(self: Arc<Self>, req: Request, authorized: Authorized) -> ResponseFuture<'t>
    where
        Self: 't,
    {
        self.handler_for(&req).serve(req, authorized)
    }
}

impl Director {
    fn handler_for(&self, req: &Request) -> DynHandler {
        // By the decoded path, which is also what was authorized: routing by another spelling could serve a path that
        // nobody checked.
        match route(&self.container.claims(), respond::path(req)) {
            Target::WebService(handler) => handler,
            Target::Mux => self.mux.clone(),
        }
    }
}
