//! Effects of the empty lists and maps of a body, although they are not stored: upstream has them in Go's memory until
//! it encodes the object.
//!
//! Entry points: [`manage`] before admission, [`with_empties`] for validation, [`count`] for the generation. Which ones
//! a body had is recorded by the decoder (`kube_schema::decode::Empties`).

use super::schema::reset_set;
use super::store::Store;
use super::strategy::Context;
use crate::apimachinery::apply::Writer;
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::value::Value;

/// Records the ownership of the fields that a write other than an apply has changed.
pub(super) fn manage(store: &Store, cx: &Context, live: Option<&Value>, new: &mut Value, who: &Writer<'_>) {
    let reset = reset_set(store.strategy.reset_fields(who.subresource));
    let prevented = store.strategy.rules().defaults_prevented_by_empties.iter();
    let unowned: Vec<(Vec<&str>, Value)> = prevented
        .filter(|path| cx.empties.is_at(path))
        .filter_map(|path| {
            let path: Vec<&str> = path.split('.').collect();
            let default = new.unset(&path)?;
            Some((path, default))
        })
        .collect();
    store.resource.schema.manage_update(live, new, who, &reset);
    for (path, default) in unowned {
        new.set(&path, default);
    }
}

/// The object with the empty lists and maps of the body, except in the parts that the kind does not take from it. `None`
/// if that is the object itself, so that it is not validated twice.
pub(super) fn with_empties(store: &Store, cx: &Context, subresource: &str, object: &Value) -> Option<Value> {
    let mut whole = cx.empties.restored(object)?;
    for path in store.strategy.reset_fields(subresource) {
        let path: Vec<&str> = path.split('.').collect();
        restore(&mut whole, object, &path);
    }
    Some(whole).filter(|whole| whole != object)
}

/// Increments the generation if the body has an empty list or map in one of `members`. Upstream compares these with the
/// stored object in Go's memory, where `[]` is not the absent list that the storage made of it, so that each such update
/// counts.
pub(super) fn count(members: &[&str], cx: &Context, new: &mut Value, old: &Value) {
    let generation = ["metadata", "generation"];
    if members.is_empty() || new.at(&generation) != old.at(&generation) {
        return;
    }
    let Some(whole) = cx.empties.restored(new) else {
        return;
    };
    if members.iter().any(|m| whole.get(m) != new.get(m)) {
        let was = old.at(&generation).as_i64().unwrap_or(0);
        new.set_meta("generation", was + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::strategy::Strategy;
    use std::sync::Arc;

    /// A strategy whose objects have a status that is not the client's.
    struct WithStatus;

    impl Strategy for WithStatus {
        fn reset_fields(&self, _: &str) -> &'static [&'static str] {
            &["status"]
        }
    }

    #[test]
    fn empty_lists_of_an_ignored_status_are_ignored() {
        let (group, version) = ("apiextensions.k8s.io", "v1");
        let builder = crate::controlplane::resource_builder::GroupVersionBuilder { group, version };
        let row = builder.kind("customresourcedefinitions", "CustomResourceDefinition");
        let storage = Arc::new(crate::controlplane::reviews::NoStorage);
        let resource = Arc::new(row.strategy(WithStatus).build());
        let store = Store::new(resource, storage, Arc::new(crate::admission::AdmitAll));
        let cx = Context::system("");
        let mut object = crate::json!({"metadata": {"name": "a", "labels": {}}, "status": {"storedVersions": []}});
        let (_, empties) = store.resource.schema.normalize_with_empties(&mut object).unwrap();
        cx.empties.set(empties);
        object.set(&["status"], crate::json!({"storedVersions": null}));
        let whole = with_empties(&store, &cx, "", &object).unwrap();
        assert_eq!(whole.at(&["metadata", "labels"]), &Value::object());
        assert_eq!(whole.get("status"), object.get("status"));
    }
}
