//! The director chooses, by the decoded path alone, between the restful container and the path mux.

use super::container::{Claims, Container};
use super::mux::{DynHandler, PathRecorderMux};
use super::respond;
use crate::request::{Answering, Authorized, Request, UnprotectedHandler};
use std::sync::Arc;

/// Who gets a path.
pub enum Choice {
    /// A web service claims it.
    WebService(DynHandler),
    /// Nobody does: the mux, and behind it the delegate.
    Mux,
}

/// The decision: a pure function over the claim table.
pub fn choose(claims: &Claims, path: &str) -> Choice {
    match claims.claimant(path) {
        Some(ws) => Choice::WebService(ws.handler.clone()),
        None => Choice::Mux,
    }
}

/// The way into one server, below the filters.
pub struct Director {
    container: Arc<Container>,
    mux: Arc<PathRecorderMux>,
}

impl Director {
    /// A director over these two.
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
