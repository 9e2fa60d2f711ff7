//! Handlers of subresources that have their own object (`scale`, `binding`, `eviction`, `token`, `approval`,
//! `finalize`) or connect to a backend ([`connect`]). `status` and other parts of the main object are handled
//! by the registry.

pub(super) mod approval;
pub(super) mod binding;
pub(super) mod cleanup;
pub(super) mod connect;
pub(super) mod eviction;
pub(super) mod finalize;
mod pod_condition;
pub(super) mod scale;
pub(super) mod token;

use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::registry::Store;
use crate::registry::strategy::Context;
use crate::registry::write::WriteOptions;

/// Replaces an object through this store's strategy. `write` is the subresource and the field manager;
/// without a manager the object's own managed fields are stored, as an apply has computed them.
///
/// # Errors
/// 400 if the names differ, 404 if the object does not exist, and any failure of the store.
async fn replace(store: &Store, cx: &Context, name: &str, object: Value, write: (&str, Option<&str>)) -> Result<Value> {
    let (subresource, manager) = write;
    if object.name() != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object.name()
        )));
    }
    let options = WriteOptions {
        subresource: subresource.to_owned(),
        manager: manager.map(str::to_owned),
        uid: Some(object.uid().to_owned()).filter(|u| !u.is_empty()),
        ..WriteOptions::default()
    };
    let gr = store.resource().group_resource();
    let mut transform = |live: Option<&Value>| match live {
        None => Err(Status::not_found(&gr, name)),
        // Cloned, because the transform runs again after a conflict.
        Some(_) => Ok(object.clone()),
    };
    let updated = store.update(cx, name, &mut transform, false, &options).await?;
    Ok(updated.object.to_value())
}
