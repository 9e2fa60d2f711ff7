//! Dry run of the storage write: performs its checks and conversions without writing.

use super::write::ResultObject;
use crate::apimachinery::value::Value;
use crate::storage::{Entry, Error, MinRevision, Storage};
use std::sync::Arc;

/// Returns the object as it would be created, or the entry that already exists at its key.
pub(super) async fn create(
    storage: &Arc<dyn Storage>,
    key: &str,
    object: &Value,
) -> Result<Result<ResultObject, Arc<Entry>>, Error> {
    match storage.get(key, MinRevision::Latest).await? {
        Some(entry) => Ok(Err(entry)),
        None => written(storage, object).await.map(Ok),
    }
}

/// Returns the object as the response to its write would show it.
pub(super) async fn written(storage: &Arc<dyn Storage>, object: &Value) -> Result<ResultObject, Error> {
    let read = storage.preview(object).await?;
    Ok(ResultObject::Tree(read.unwrap_or_else(|| object.clone())))
}
