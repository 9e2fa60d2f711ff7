//! GET of a single object or subresource.

use super::super::call::Call;
use super::super::{offload, options::list::min_revision, respond};
use super::{Reply, VerbResult, memory_to_encode};
use crate::apimachinery::gvk::GroupVersionResource;
use crate::apimachinery::status::{Result, Status};
use crate::registry::{ResultObject, SubresourceBehaviour};
use crate::storage::MinRevision;

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
            let min = lower_bound(&call.resource().gvr, call.query.text("resourceVersion"))?;
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

fn lower_bound(of: &GroupVersionResource, version: &str) -> Result<MinRevision> {
    min_revision(version).map_err(|e| match (&*of.group, &*of.resource) {
        // Upstream has no watch cache of events, and its storage words the error like that of a list.
        ("" | "events.k8s.io", "events") => Status::bad_request(format!("invalid resource version: {e}")),
        _ => e.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_version_is_the_clients_fault_where_upstream_has_no_cache() {
        let code = |group: &str, resource: &str| {
            let of = GroupVersionResource::new(group, "v1", resource);
            lower_bound(&of, "x").map_err(|e| e.code).err()
        };
        assert_eq!(code("", "configmaps"), Some(500));
        assert_eq!(code("", "events"), Some(400));
        assert_eq!(code("events.k8s.io", "events"), Some(400));
        assert_eq!(code("example.com", "events"), Some(500));
    }
}
