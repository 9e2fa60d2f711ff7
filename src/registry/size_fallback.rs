//! Fallback for objects that exceed the storage's size limit: a rejected write is retried once without
//! managed fields.
//!
//! Upstream's handlers do the same, except for applies, which are meaningless without managed fields.

use super::meta;
use super::store::Store;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::storage::{Draft, Entry, Error, Precondition};
use std::sync::Arc;

/// Writes `draft`, the encoding of `object`. If it is too large and `may_forget` is set, retries without
/// managed fields.
///
/// # Errors
/// The errors of storage; [`Error::TooLarge`] if the object does not fit even without managed fields.
pub(super) async fn put(
    store: &Store,
    key: &str,
    when: Precondition,
    (object, draft): (&Value, Draft),
    ttl: Option<u64>,
    may_forget: bool,
) -> Result<Arc<Entry>, Error> {
    let refused = match store.storage.put(key, when, draft, ttl).await {
        // Cloning the draft for every write would cost more than encoding again the few that are refused.
        Err(e @ Error::TooLarge(_)) => e,
        done => return done,
    };
    // Nothing would be gained by the second attempt.
    if !may_forget || object.at(&["metadata", "managedFields"]).items().is_empty() {
        return Err(refused);
    }
    let bare = object.without_meta(&["managedFields"]);
    let draft = meta::draft(&store.resource, &bare);
    store.storage.put(key, when, draft, ttl).await
}
