//! The patch of a mutating webhook: decoded, applied, and its result decoded and defaulted like a client's
//! object.

use super::failure::Failure;
use super::review::ReviewResponse;
use crate::admission::{ObjectLookup, ServedKind};
use crate::apimachinery::patch::{Decoding, json_patch::JsonPatch};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::tasks::compute;

/// Size in bytes up to which a patch without copy and move operations is applied on the reactor: it costs
/// little more than decoding the object, which happens there as well.
const SMALL: usize = 8 << 10;
/// Estimated allocations of applying a patch, besides its own bytes: upstream's limit of what a patch may
/// copy, as a tree.
const MEMORY: usize = 24 << 20;
const MEMORY_PER_BYTE: usize = 8;

/// The object after the patch of `answer`; `None` if that has none.
///
/// # Errors
/// A patch that is not a list of operations counts as a failed call, one that does not apply as an internal
/// error.
pub(super) async fn apply(
    cluster: &ObjectLookup,
    (webhook, subresource): (&str, &str),
    target: &ServedKind,
    object: &Value,
    answer: &ReviewResponse,
) -> Result<Option<Value>, Failure> {
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let decoded = JsonPatch::decode(&answer.patch, Decoding::Lenient);
    let patch = decoded
        .map_err(|s| Failure::unusable(format!("received undecodable patch in webhook response: {}", s.message)))?;
    // Without operations nothing is modified, so there need not be an object.
    if patch.is_empty() {
        return Ok(None);
    }
    if object.is_null() {
        return Err(Failure::Internal(Status::internal(format!(
            "admission webhook {webhook:?} attempted to modify the object, which is not supported for this operation"
        ))));
    }
    if answer.patch_type != "JSONPatch" {
        return Err(Failure::unusable(format!(
            "unsupported patch type {:?}",
            answer.patch_type
        )));
    }
    // Copies can double the object with each operation.
    let light = answer.patch.len() <= SMALL && !patch.has_copies();
    let (cluster, target, subresource, object) =
        (cluster.clone(), target.clone(), subresource.to_owned(), object.clone());
    let work = async move {
        let patched = patch
            .apply_explained(object)
            .map_err(|why| Status::internal(why.text))?;
        let mut patched = patched;
        // Later webhooks and the registry expect a decoded and defaulted object.
        let completed = cluster.complete(&target, &subresource, &mut patched).await;
        completed.map_err(|s| Status::internal(s.message))?;
        Ok(patched)
    };
    let done = match light {
        true => work.await,
        false => {
            let done = compute::offload(MEMORY + answer.patch.len() * MEMORY_PER_BYTE, work).await;
            done.unwrap_or_else(|_| {
                Err(Status::too_many_requests(
                    "too many requests, please try again later",
                    1,
                ))
            })
        }
    };
    let patched = done.map_err(Failure::Internal)?;
    // The caller compares and drops objects of this size.
    compute::leave_reactor_with(&patched).await;
    Ok(Some(patched))
}
