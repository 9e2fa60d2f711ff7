//! Delete collection: deletes the objects selected by a list.

use super::delete;
use super::store::Store;
use super::strategy::Context;
use super::write::DeleteOptions;
use crate::apimachinery::status::Result;
use crate::storage::{Entry, ListOptions, Listing};
use futures_util::StreamExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

impl Store {
    /// Deletes the objects selected by a list and returns that list, as upstream does. Not cancel safe.
    ///
    /// # Errors
    /// Stops at the first error; objects deleted before it stay deleted.
    pub(crate) async fn delete_collection(
        &self,
        cx: &Context,
        select: ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing> {
        delete_collection(self, cx, select, options).await
    }
}

/// Objects whose deletions are in progress at the same time, so that their writes share transactions of the
/// store. They begin in the order of the list.
const CONCURRENT: usize = 16;

pub(super) async fn delete_collection(
    store: &Store,
    cx: &Context,
    select: ListOptions,
    options: &DeleteOptions,
) -> Result<Listing> {
    let listing = store.list(select).await?;
    let failed = AtomicBool::new(false);
    let deletions = listing
        .entries
        .iter()
        .map(|entry| delete_one(store, cx, entry, options, &failed));
    // Boxed: the deletions in one future would be large.
    let mut results = futures_util::stream::iter(deletions).buffered(CONCURRENT).boxed();
    let mut outcome = Ok(());
    // After a failure none begins, but those in progress are brought to their end.
    while let Some(result) = results.next().await {
        // The first error is the answer.
        outcome = outcome.and(result);
    }
    drop(results);
    outcome.map(|()| listing)
}

async fn delete_one(
    store: &Store,
    cx: &Context,
    entry: &Entry,
    options: &DeleteOptions,
    failed: &AtomicBool,
) -> Result<()> {
    // Relaxed: one more deletion that begins makes no difference.
    if failed.load(Ordering::Relaxed) {
        return Ok(());
    }
    let cx = Context {
        namespace: entry_namespace(store, entry.namespace()),
        ..cx.clone()
    };
    // Admitted without a name, as upstream, where all deletions share the attributes of the request.
    match delete::delete_as(store, &cx, entry.name(), "", options).await {
        // It was already deleted by another request, which is the requested result.
        Err(s) if s.code != 404 => {
            failed.store(true, Ordering::Relaxed);
            Err(s)
        }
        _ => Ok(()),
    }
}

fn entry_namespace(store: &Store, namespace: &str) -> String {
    if store.resource.namespaced {
        namespace.to_owned()
    } else {
        String::new()
    }
}
