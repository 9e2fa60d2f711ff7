//! The verbs. Each takes a [`Call`] and returns a response.
//!
//! Entry point: [`run`]. The order of a verb's checks is upstream's, because it determines which of several
//! errors the client sees.

pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;
pub(crate) mod watch;

use super::call::Call;
use super::negotiate::Negotiated;
use super::offload;
use super::options::Query;
use super::respond;
use super::route::Action;
use crate::apimachinery::status::Result;
use crate::registry::{Resource, ResultObject};
use crate::request::{Body, Response};
use crate::storage::Budget;
use http::HeaderMap;
use std::sync::Arc;

/// The response of a verb, or the error to respond with.
pub(crate) type VerbResult = Result<Response>;

/// Runs the verb of `action`.
pub(crate) async fn run(action: Action, call: Call, body: Body) -> VerbResult {
    match action {
        Action::Get => get::get(call).await,
        Action::List => list::list(call).await,
        Action::Watch => watch::watch(call).await,
        Action::Create => create::create(call, body).await,
        Action::Update => update::update(call, body).await,
        Action::Patch => patch::patch(call, body).await,
        Action::Delete => delete::delete(call, body).await,
        Action::DeleteCollection => delete::delete_collection(call, body).await,
        Action::Connect => connect::connect(call, body).await,
    }
}

/// Estimated memory, in bytes, for encoding a large object.
const MEMORY_TO_ENCODE: usize = 12 << 20;

/// The parts of a call needed to respond to a write; moved into the task that runs the write.
struct Reply {
    negotiated: Negotiated,
    resource: Arc<Resource>,
    headers: HeaderMap,
    query: Query,
    budget: Option<Arc<Budget>>,
}

impl Reply {
    fn to(call: &Call, negotiated: Negotiated) -> Self {
        Self {
            negotiated,
            resource: call.shown(),
            headers: call.parts.headers.clone(),
            query: call.query.clone(),
            budget: call.store().budget().cloned(),
        }
    }

    /// The response with an object, encoded off the reactor if it is large and its stored bytes are not the
    /// response.
    async fn object(self, code: u16, written: ResultObject) -> VerbResult {
        let heavy = match &written {
            ResultObject::Stored(_) if self.negotiated.is_plain() && !written.is_compressed() => false,
            ResultObject::Stored(entry) => offload::is_heavy(entry.json.len()),
            ResultObject::Tree(object) => offload::is_large(object),
        };
        if heavy {
            return offload::run_offloaded(MEMORY_TO_ENCODE, async move { self.encoded(code, &written) }).await;
        }
        self.encoded(code, &written)
    }

    fn encoded(&self, code: u16, written: &ResultObject) -> VerbResult {
        respond::object(
            code,
            written,
            &self.resource,
            self.negotiated,
            &self.headers,
            &self.query,
            self.budget.as_ref(),
        )
    }
}
