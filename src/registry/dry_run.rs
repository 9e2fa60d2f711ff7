//! Dry run of the storage write: performs its checks without writing.

use super::errors;
use super::write::ResultObject;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::storage::{Entry, MinRevision, Storage};
use std::sync::Arc;

/// Returns the object as it would be created, or the entry that already exists at its key.
pub(super) async fn create(
    storage: &Arc<dyn Storage>,
    key: &str,
    object: &Value,
) -> Result<std::result::Result<ResultObject, Arc<Entry>>> {
    let existing = storage
        .get(key, MinRevision::Latest)
        .await
        .map_err(|e| errors::read(&e))?;
    Ok(match existing {
        Some(entry) => Err(entry),
        None => Ok(ResultObject::Tree(object.clone())),
    })
}
