//! Objects too large for the store. Their managed fields are what can be done without: a write that is refused for its
//! size is tried once more without them, as upstream's handlers do (not for applies, whose point they are).

use super::meta;
use super::store::Store;
use crate::apimachinery::value::Value;
use crate::storage::{Draft, Entry, Error, Precondition};
use std::sync::Arc;

/// Writes `draft`, which is `object` encoded; where that is too large and `may_forget`, without managed fields.
///
/// # Errors
/// Those of the store; [`Error::TooLarge`] where the object is too large even so.
pub(super) async fn put(
    store: &Store,
    key: &str,
    when: Precondition,
    (object, draft): (&Value, Draft),
    ttl: Option<u64>,
    may_forget: bool,
) -> Result<Arc<Entry>, Error> {
    const MANAGED: [&str; 2] = ["metadata", "managedFields"];
    let refused = match store.storage.put(key, when, draft, ttl).await {
        Err(e @ Error::TooLarge(_)) => e,
        done => return done,
    };
    if !may_forget || object.at(&MANAGED).items().is_empty() {
        return Err(refused);
    }
    let mut bare = object.clone();
    bare.unset(&MANAGED);
    let draft = meta::draft(&store.resource, &bare);
    store.storage.put(key, when, draft, ttl).await
}
