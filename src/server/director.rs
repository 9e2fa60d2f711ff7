//! The director dispatches a request, by its decoded path alone, to the restful container or to the path mux
//! (upstream's `director` in `k8s.io/apiserver/pkg/server/handler.go`).

use super::container::{Claims, Container};
use super::mux::{DynHandler, PathRecorderMux};
use super::respond;
use crate::request::{Answering, Authorized, Request, UnprotectedHandler};
use std::sync::Arc;

/// The target of a path.
pub enum Choice {
    /// A web service claims the path.
    WebService(DynHandler),
    /// No web service does: the mux handles it, and falls back to the delegate.
    Mux,
}

/// Chooses the target of a path. A pure function of the claim table.
pub fn choose(claims: &Claims, path: &str) -> Choice {
    match claims.claimant(path) {
        Some(ws) => Choice::WebService(ws.handler.clone()),
        None => Choice::Mux,
    }
}

/// The entry handler of one server, below the filters.
pub struct Director {
    container: Arc<Container>,
    mux: Arc<PathRecorderMux>,
}

impl Director {
    /// A director over this container and mux.
    pub fn new(container: Arc<Container>, mux: Arc<PathRecorderMux>) -> Self {
        Self { container, mux }
    }
}

impl UnprotectedHandler for Director {
    fn serve<'a, 't>(&'a self, req: Request, authorized: Authorized) -> Answering<'t>
    where
        'a: 't,
        Self: 't,
    {
        self.chosen(&req).answer(req, authorized)
    }

    fn answer(self: Arc<Self>, req: Request, authorized: Authorized) -> Answering<'static> {
        self.chosen(&req).answer(req, authorized)
    }
}

impl Director {
    fn chosen(&self, req: &Request) -> DynHandler {
        match choose(&self.container.claims(), respond::path(req)) {
            Choice::WebService(handler) => handler,
            Choice::Mux => self.mux.clone(),
        }
    }
}
