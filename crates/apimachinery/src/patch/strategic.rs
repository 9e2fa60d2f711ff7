//! Strategic merge patch: a merge patch that uses the schema to merge lists of objects by key.
//!
//! Start at [`decode`] and [`apply`]. Upstream's `strategicpatch` package is the reference, including its
//! quirks: a value added where nothing (or another JSON type) was before loses every map with a `$patch`
//! directive; merge keys compare like Go interfaces (`80` differs from `80.0`); and the order of a patch list
//! determines the order of the items it contains.
//!
//! ```text
//! patch member                       effect on the live object
//! k: null                            k is removed
//! k: {..} / scalar / list            merged / set / merged by key, united or replaced, per the schema
//! $patch: replace | delete           this map is replaced by its other members | emptied
//! [{$patch: delete, key: v}]         items with that key are removed
//! [{$patch: replace}, ..]            the remaining items replace the list
//! $deleteFromPrimitiveList/k: [..]   these scalars are removed from k
//! $setElementOrder/k: [..]           after merging, items of k follow this order
//! $retainKeys: [..]                  all other members are removed first
//! ```

mod leftover;
mod list;

pub use leftover::leftover;

use super::merge::prune_nulls;
use super::{decode_object, go_print, rejected};
use crate::interrupt::checkpoint;
use crate::status::Status;
use crate::value::{Map, Str, Value};
use std::collections::HashSet;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

/// The patch-related parts of a type's schema: one trait for structs, maps and lists.
pub trait PatchSchema: Copy {
    /// The member `name`; `None` if a struct declares no such field.
    fn field(self, name: &str) -> Option<FieldPatch<Self>>;
    /// True for a map, whose members cannot be looked up in a schema.
    fn is_map(self) -> bool {
        false
    }
    /// The type's Go name, used in messages.
    fn type_name(self) -> &'static str;
}

/// How a member is patched.
#[derive(Clone, Copy, Debug)]
pub struct FieldPatch<S> {
    /// The member's type; for a list, the type of its elements.
    pub schema: S,
    /// For a list: merge instead of replace.
    pub merge: bool,
    /// For an object: replace instead of merge.
    pub replace: bool,
    /// The field that identifies the objects of a merged list; `None` for lists of scalars.
    pub merge_key: Option<&'static str>,
}

/// Decodes the body of a patch; also returns its duplicate keys.
///
/// # Errors
/// 400 with Go's message, which has no prefix for this format.
pub fn decode(body: &[u8]) -> Result<(Map, Vec<String>), Status> {
    // `null` merges nothing.
    let (m, duplicates) = decode_object(body).map_err(|e| Status::bad_request(e.to_string()))?;
    Ok((m.unwrap_or_default(), duplicates))
}

/// Merges `patch` into `doc`, an object of type `schema`.
///
/// A schema with one list that is merged by name:
///
/// ```
/// use torana_apimachinery::json;
/// use torana_apimachinery::patch::strategic::{self, FieldPatch, PatchSchema};
///
/// #[derive(Clone, Copy)]
/// struct Pod;
///
/// impl PatchSchema for Pod {
///     fn field(self, name: &str) -> Option<FieldPatch<Self>> {
///         let merge = name == "containers";
///         Some(FieldPatch { schema: Pod, merge, replace: false, merge_key: merge.then_some("name") })
///     }
///
///     fn type_name(self) -> &'static str {
///         "Pod"
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut pod = json!({"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]});
/// let (patch, _) = strategic::decode(br#"{"containers": [{"name": "a", "image": "a:2"}]}"#)?;
/// strategic::apply(&mut pod, patch, Pod)?;
/// assert_eq!(pod, json!({"containers": [{"name": "a", "image": "a:2"}, {"name": "b", "image": "b:1"}]}));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// 400, 422 or 500 without a reason, depending on the mistake, as upstream.
pub fn apply<S: PatchSchema>(doc: &mut Value, patch: Map, schema: S) -> Result<(), Status> {
    merge_map(doc.make_object(), patch, schema)
}

fn bad_format(what: &str) -> Status {
    Status::bad_request(format!("invalid patch format of {what}"))
}

fn unknown_patch_type(directive: &Value, map: &Map) -> Status {
    // The map is the whole patch at this level; only reached for a mistake in the patch.
    let map = go_print(&Value::Object(map.clone()));
    // Upstream formats the directive with `%s`.
    let directive = match directive {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            format!("%!s({}={})", super::go_type(directive), go_print(directive))
        }
        Value::Null => "%!s(<nil>)".into(),
        other => go_print(other),
    };
    Status::raw_error(format!("unknown patch type: {directive} in map: {map}"))
}

fn no_merge_key(item: &Value, key: &str) -> Status {
    Status::raw_error(format!(
        "map: {} does not contain declared merge key: {key}",
        go_print(item)
    ))
}

/// The error for a non-list where a list is expected.
fn no_list(v: &Value) -> Status {
    wrong_type("[]interface {}", v)
}

/// The error for a value of another type than the expected one, with upstream's format verbs.
fn wrong_type(expected: &str, v: &Value) -> Status {
    let found = match v {
        Value::Null => "%!s(<nil>)",
        v => super::go_type(v),
    };
    Status::raw_error(format!("expected a {expected}, but received a {found}"))
}

fn lookup<S: PatchSchema>(schema: S, name: &str) -> Result<FieldPatch<S>, Status> {
    schema.field(name).ok_or_else(|| {
        let t = schema.type_name();
        Status::raw_error(match schema.is_map() {
            true => "merging an object in json but data type is not struct, instead is: map".to_owned(),
            false => format!("unable to find api field in struct {t} for the json field {name:?}"),
        })
    })
}

/// The name of the field that a prefixed directive refers to.
fn directed<'k>(key: &'k str, prefix: &str, what: &str) -> Result<&'k str, Status> {
    key.strip_prefix(prefix)
        .and_then(|k| k.strip_prefix('/'))
        .ok_or_else(|| bad_format(what))
}

fn merge_map<S: PatchSchema>(live: &mut Map, mut patch: Map, schema: S) -> Result<(), Status> {
    if let Some(d) = patch.get(DIRECTIVE) {
        match d.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                // The other members become the object as they are, nested directives included.
                *live = patch;
            }
            // The other members of the patch are ignored.
            Some("delete") => *live = Map::new(),
            _ => return Err(unknown_patch_type(d, &patch)),
        }
        return Ok(());
    }
    // Most maps in a patch have no directives. `$` sorts before all field names, so directives come first.
    if patch.keys().any(|k| k.starts_with('$')) {
        // Before the merge: keys that the patch itself adds must survive.
        retain_keys(live, &mut patch)?;
        // Before the merge of other members, because it takes its lists out of the patch.
        set_element_order(live, &mut patch, schema)?;
    }
    // Insertions and removals are collected and applied in one pass, because single changes to a large object
    // are quadratic. A directive may refer to a member that the patch also names directly. Directives are
    // contiguous in key order, so pending changes are applied whenever the kind of entry changes.
    let mut changes: Vec<(Str, Option<Value>)> = Vec::new();
    let mut deleting = false;
    for (key, value) in patch {
        checkpoint();
        let deletes = key.starts_with(DELETE_FROM);
        if deletes != deleting {
            deleting = deletes;
            live.change(std::mem::take(&mut changes));
        }
        let key = if deletes {
            directed(&key, DELETE_FROM, "primitive list")?
        } else {
            key.as_str()
        };
        if value.is_null() {
            changes.push((Str::new(key), None));
            continue;
        }
        // A value of another JSON type is replaced instead of merged.
        let Some(old) = live
            .get_mut(key)
            .filter(|old| std::mem::discriminant(*old) == std::mem::discriminant(&value))
        else {
            // Deleting from an absent list does nothing.
            if !deletes && let Some(new) = inserted(value) {
                changes.push((Str::new(key), Some(new)));
            }
            continue;
        };
        match (old, value) {
            (Value::Object(old), Value::Object(new)) => {
                // Looked up only now: upstream does not need a declared field to remove or insert a value.
                let field = lookup(schema, key)?;
                if field.replace {
                    *old = new
                } else {
                    merge_map(old, new, field.schema)?
                }
            }
            (Value::Array(old), Value::Array(new)) => {
                let field = lookup(schema, key)?;
                // A deletion directive works on lists of scalars whatever their merge strategy.
                if field.merge || deletes {
                    list::merge(old, new, &field, deletes)?;
                } else {
                    *old = new;
                }
            }
            (old, new) => *old = new,
        }
    }
    live.change(changes);
    Ok(())
}

/// Prepares a value for insertion where none was before; `None` if nothing of it remains.
fn inserted(mut v: Value) -> Option<Value> {
    // Nulls mean removal, and there is nothing to remove.
    prune_nulls(&mut v);
    without_directives(&mut v).then_some(v)
}

/// Removes every map with a `$patch` member below `v`; returns false if `v` itself is one.
fn without_directives(v: &mut Value) -> bool {
    match v {
        // A directive has nothing to act on here; upstream drops the map that contains it.
        Value::Object(m) if m.contains_key(DIRECTIVE) => return false,
        Value::Object(m) => m.retain(|_, v| without_directives(v)),
        Value::Array(a) => a.retain_mut(without_directives),
        _ => {}
    }
    true
}

fn retain_keys(live: &mut Map, patch: &mut Map) -> Result<(), Status> {
    let Some(keep) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let keep = keep.as_array().ok_or_else(|| bad_format("retainKeys"))?;
    let keep: HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
    let kept = |k: &str| keep.contains(k);
    for (k, v) in patch.iter() {
        // Every key the patch sets must be listed; directives refer to other members and are exempt.
        if !v.is_null() && !k.starts_with(DELETE_FROM) && !k.starts_with(ELEMENT_ORDER) && !kept(k) {
            return Err(bad_format("retainKeys"));
        }
    }
    live.retain(|k, _| kept(k));
    Ok(())
}

/// Merges and reorders the lists that have a `$setElementOrder` directive, and removes them from the patch.
fn set_element_order<S: PatchSchema>(live: &mut Map, patch: &mut Map, schema: S) -> Result<(), Status> {
    const WHAT: &str = "setElementOrder list";
    // Taken out first: the loop below needs `patch` mutably to look up the lists.
    let mut directives: Vec<(Str, Value)> = Vec::new();
    patch.retain(|k, v| {
        let directive = k.starts_with(ELEMENT_ORDER);
        if directive {
            directives.push((Str::new(k), std::mem::take(v)));
        }
        !directive
    });
    // Removals from the patch and insertions into the live object are batched at the end, because a client
    // may send many.
    let mut taken: HashSet<Str> = HashSet::new();
    let mut new: Vec<(Str, Option<Value>)> = Vec::new();
    for (directive, order) in directives {
        let Value::Array(order) = order else {
            return Err(no_list(&order));
        };
        let name = directed(&directive, ELEMENT_ORDER, WHAT)?;
        let before = match live.get_mut(name) {
            None => None,
            // Taken rather than cloned; it is put back, arranged, at the end of the iteration.
            Some(Value::Array(a)) => Some(std::mem::take(a)),
            Some(other) => return Err(no_list(other)),
        };
        let change = match patch.get_mut(name) {
            None => None,
            Some(Value::Array(a)) => Some(std::mem::take(a)),
            Some(other) => return Err(no_list(other)),
        };
        let field = lookup(schema, name)?;
        // Remembered even if merging fails: an error discards the whole patch.
        if change.is_some() {
            taken.insert(Str::new(name));
        }
        if before.is_none() && change.is_none() {
            continue;
        }
        if let Some(change) = &change {
            list::check_order(change, &order, field.merge_key)?;
        }
        // Both lists are consumed by the merge. The order of the live one decides where unlisted items go.
        let (old, new_items) = (
            before.as_deref().unwrap_or_default(),
            change.as_deref().unwrap_or_default(),
        );
        let kinds = list::of_maps(old, new_items);
        let server = match field.merge_key {
            Some(key) if field.merge => list::order_in_place(old, new_items, key),
            key => list::Index::of(old, key),
        };
        let merged = match (before, change) {
            (Some(mut b), Some(c)) => {
                if field.merge {
                    list::merge(&mut b, c, &field, false)?;
                    b
                } else {
                    c
                }
            }
            // No live list: what the patch has is inserted, without its directives.
            (None, Some(c)) => match inserted(Value::Array(c)) {
                Some(Value::Array(a)) => a,
                _ => continue,
            },
            (b, None) => b.unwrap_or_default(),
        };
        list::check_partition(&merged, &order, field.merge_key)?;
        // Only now, as upstream: an item that is no object has been refused as such.
        kinds?;
        let arranged = Value::Array(list::arrange_by(merged, &order, &server, field.merge_key)?);
        // `None` only if the live object had no such list.
        match live.get_mut(name) {
            Some(there) => *there = arranged,
            None => new.push((Str::new(name), Some(arranged))),
        }
    }
    live.change(new);
    if !taken.is_empty() {
        patch.retain(|k, _| !taken.contains(k));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
