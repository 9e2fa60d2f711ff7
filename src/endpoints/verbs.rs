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

/// Estimated memory, in bytes, for encoding an object, if that would block a reactor thread for too long. `None`
/// if the stored bytes are the response.
fn memory_to_encode(written: &ResultObject, negotiated: Negotiated) -> Option<usize> {
    /// Estimate for a tree, whose encoded size is not known.
    // Four bytes per byte of the largest request body (3 MiB), the factor of the estimate for stored objects.
    const LARGE: usize = 12 << 20;
    match written {
        ResultObject::Stored(_) if negotiated.is_plain() && !written.is_compressed() => None,
        ResultObject::Stored(entry) => Some(entry.json.len()).filter(|n| offload::is_heavy(*n)).map(|n| n * 4),
        ResultObject::Tree(object) => offload::is_large(object).then_some(LARGE),
    }
}

/// The parts of a call needed to respond to a write. Taken before the call moves into the task that runs it.
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
            // Resolved here because the call itself moves into the task of the write.
            resource: call.response_resource(),
            headers: call.parts.headers.clone(),
            query: call.query.clone(),
            budget: call.store().budget().cloned(),
        }
    }

    /// The response with an object, encoded off the reactor if it is large and its stored bytes are not the
    /// response.
    async fn object(self, code: u16, written: ResultObject) -> VerbResult {
        match memory_to_encode(&written, self.negotiated) {
            Some(memory) => offload::run_offloaded(memory, async move { self.encoded(code, &written) }).await,
            None => self.encoded(code, &written),
        }
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
