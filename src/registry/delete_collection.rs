//! Delete collection: deletes the objects selected by a list, one after the other.

use super::delete;
use super::store::{DeleteOptions, Store};
use super::strategy::Context;
use crate::apimachinery::status::Result;
use crate::storage::{ListOptions, Listing};

pub(super) async fn delete_collection(
    store: &Store,
    cx: &Context,
    select: ListOptions,
    options: &DeleteOptions,
) -> Result<Listing> {
    let listing = store.list(select).await?;
    for entry in &listing.entries {
        let cx = Context {
            namespace: entry_namespace(store, entry.namespace()),
            ..cx.clone()
        };
        match delete::delete_as(store, &cx, entry.name(), "", options).await {
            Ok(_) => {}
            Err(s) if s.code == 404 => {}
            Err(s) => return Err(s),
        }
    }
    Ok(listing)
}

fn entry_namespace(store: &Store, namespace: &str) -> String {
    if store.resource.namespaced {
        namespace.to_owned()
    } else {
        String::new()
    }
}
