//! GET of a single object or subresource.

use super::super::call::Call;
use super::super::{offload, options::list::min_revision, respond};
use super::{Reply, VerbResult, memory_to_encode};
use crate::apimachinery::status::Status;
use crate::registry::{ResultObject, SubresourceBehaviour};

pub(crate) async fn get(call: Call) -> VerbResult {
    call.require_name()?;
    let negotiated = call.negotiate(call.offer())?;
    // Refused rather than ignored, because ignoring it would return fields that old clients expect to be stripped.
    if call.query.flag("export") == Some(true) && call.subresource().is_empty() {
        return Err(Status::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    call.check_name()?;
    let behaviour = call.route.subresource().map(|s| s.behaviour.clone());
    let written = match behaviour {
        // `resourceVersion` is ignored: the handler computes its object, which has no history.
        Some(SubresourceBehaviour::Custom(handler)) => ResultObject::Tree(handler.get(&call.cx, call.name()).await?),
        _ => {
            // `resourceVersion` of a GET is a lower bound: the cache may serve it without asking the store.
            let min = min_revision(call.query.text("resourceVersion"))?;
            ResultObject::Stored(call.store().get(&call.cx.namespace, call.name(), min).await?)
        }
    };
    if let Some(memory) = memory_to_encode(&written, negotiated) {
        // A job must own what it uses; the direct path below borrows from the call and copies nothing.
        let reply = Reply::to(&call, negotiated);
        return offload::run_offloaded(memory, async move { reply.encoded(200, &written) }).await;
    }
    respond::object(
        200,
        &written,
        &call.response_resource(),
        negotiated,
        &call.parts.headers,
        &call.query,
        call.store().budget(),
    )
}
