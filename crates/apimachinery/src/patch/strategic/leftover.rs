//! The rest of a patch after upstream's merge. The merge consumes parts of the patch, and error messages show the
//! rest.

use super::list::Index;
use super::{
    DELETE_FROM, DIRECTIVE, ELEMENT_ORDER, FieldPatch, PatchSchema, RETAIN_KEYS, prune_nulls, without_directives,
};
use crate::interrupt::checkpoint;
use crate::value::{Map, Str, Value};
use std::collections::HashSet;

/// The rest of `patch` after upstream's merge, if [`super::apply`] has merged it into `live` without an error.
pub fn leftover<S: PatchSchema>(live: &Map, mut patch: Map, schema: S) -> Map {
    if let Some(directive) = patch.get(DIRECTIVE) {
        if directive.as_str() == Some("replace") {
            patch.remove(DIRECTIVE);
        }
        return patch;
    }
    // Names every member that the patch sets, so all of them are still there to merge into.
    patch.remove(RETAIN_KEYS);
    // The lists are merged together with the directives of their order.
    let list = |key: &str| key.strip_prefix(ELEMENT_ORDER)?.strip_prefix('/').map(Str::new);
    let ordered: HashSet<Str> = patch.keys().filter_map(list).collect();
    patch.retain(|key, _| !key.starts_with(ELEMENT_ORDER) && !ordered.contains(key));
    for (key, value) in patch.iter_mut() {
        checkpoint();
        if value.is_null() || key.starts_with(DELETE_FROM) {
            continue;
        }
        match (live.get(key), &mut *value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                if let Some(field) = schema.field(key).filter(|field| !field.replace) {
                    *new = leftover(old, std::mem::take(new), field.schema);
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                if let Some(field) = schema.field(key).filter(|field| field.merge) {
                    items(old, new, &field);
                }
            }
            // Also where both are scalars, which have nothing to lose.
            _ => inserted(value),
        }
    }
    patch
}

/// A value that is inserted as it is: it loses its nulls, and below it the maps with a directive.
fn inserted(value: &mut Value) {
    prune_nulls(value);
    match value {
        // Upstream puts the items that remain into a list of its own.
        Value::Array(items) => {
            for item in items {
                without_directives(item);
            }
        }
        value => {
            without_directives(value);
        }
    }
}

/// The items of a list that is merged by key: those that are merged into a live one lose their directives.
fn items<S: PatchSchema>(live: &[Value], patch: &mut [Value], field: &FieldPatch<S>) {
    let key = field.merge_key;
    let (mut deleted, mut replaces) = (HashSet::new(), false);
    for item in patch.iter() {
        match item.get(DIRECTIVE).as_str() {
            Some("delete") => deleted.extend(Index::token(item, key)),
            Some("replace") => replaces = true,
            _ => {}
        }
    }
    // Nothing is merged into a list that is replaced, nor into one of scalars.
    if key.is_none() || replaces {
        return;
    }
    let places = Index::of(live, key);
    for item in patch {
        checkpoint();
        let merged = Index::token(item, key).is_some_and(|token| !deleted.contains(&token));
        let old = places
            .find(item, key)
            .filter(|_| merged)
            .and_then(|place| live.get(place));
        if let (Some(Value::Object(old)), Value::Object(new)) = (old, item) {
            *new = leftover(old, std::mem::take(new), field.schema);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Toy;
    use super::*;
    use crate::json;

    fn left(live: Value, patch: Value) -> Value {
        let (Value::Object(live), Value::Object(patch)) = (live, patch) else {
            panic!("objects")
        };
        Value::Object(leftover(&live, patch, Toy))
    }

    #[test]
    fn directives_and_nulls_are_consumed_as_in_upstream() {
        let live = json!({
            "containers": [{"name": "a", "env": [{"name": "x", "value": "y"}]}], "labels": {"a": "b"},
            "strategy": {"type": "R", "rolling": {"n": 1}}, "finalizers": ["a"], "image": "1",
        });
        for (patch, want) in [
            (
                json!({"image": 5, "labels": {"a": null}}),
                json!({"image": 5, "labels": {"a": null}}),
            ),
            (
                json!({"labels": {"$patch": "replace", "c": 1}}),
                json!({"labels": {"c": 1}}),
            ),
            (
                json!({"labels": {"$patch": "delete", "c": 1}}),
                json!({"labels": {"$patch": "delete", "c": 1}}),
            ),
            (
                json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a", "image": 5}]}),
                json!({}),
            ),
            (
                json!({"strategy": {"$retainKeys": ["type"], "type": 3}}),
                json!({"strategy": {"type": 3}}),
            ),
            // Nothing to merge into: the directive stays.
            (
                json!({"new": {"$retainKeys": ["type"], "type": 3, "x": null, "y": {"$patch": "delete"}}}),
                json!({"new": {"$retainKeys": ["type"], "type": 3}}),
            ),
            (
                json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b"]}),
                json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b"]}),
            ),
            (
                json!({"containers": [
                    {"name": "a", "strategy": {"x": null}, "env": [{"name": "x", "value": null}, {"name": "n", "f": null}]},
                    {"name": "b", "strategy": {"x": null}},
                ]}),
                json!({"containers": [
                    {"name": "a", "strategy": {}, "env": [{"name": "x", "value": null}, {"name": "n", "f": null}]},
                    {"name": "b", "strategy": {"x": null}},
                ]}),
            ),
            (
                json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "a", "strategy": {"x": null}}]}),
                json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "a", "strategy": {"x": null}}]}),
            ),
        ] {
            assert_eq!(left(live.clone(), patch.clone()), want, "{patch:?}");
        }
    }
}
