//! Server-side apply: merges a manager's configuration into the live object.
//!
//! Start at [`apply`]. It detects conflicts with other managers, and removes fields that the manager applied
//! before but does not apply any more, unless another manager owns them (structured-merge-diff's
//! `merge.Updater`).

mod conflicts;
mod prune;

use super::changes::{Change, Changes};
use super::check::{check, untyped};
use super::fieldset::{FieldSet, PathElement};
use super::managed::{self, ManagedEntry, Operation, Writer, strip};
use super::typed::{self, item_element, shape_of, to_field_set};
use super::{ApplySchema, Member, OneShape, Shape, Versions};
use crate::codec::json;
use crate::interrupt::checkpoint;
use crate::object::ObjectView;
use crate::status::Status;
use crate::validation::meta::ANNOTATIONS_MAX;
use crate::value::{Map, Str, Value};
use conflicts::refuse_conflicts;
use prune::{Frame, prune};
use std::collections::{BTreeMap, BTreeSet};

/// The parameters of an apply.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// The manager for which the applied fields are recorded.
    pub writer: Writer<'a>,
    /// Take over fields owned by other managers instead of failing with a conflict.
    pub force: bool,
    /// Fields that applies through this endpoint never own.
    pub reset: &'a FieldSet,
}

/// The result of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The merged object, with updated managed fields.
    pub object: Value,
    /// False if the object differs from the live one only in managed fields, so that defaulting can be
    /// skipped.
    pub changed: bool,
}

/// Applies `config` to `live`; `None` creates the object. Both are at the writer's version. `config` is as
/// sent by the client, `live` as the server serialises it.
///
/// ```
/// # use torana_apimachinery::Value;
/// # use torana_apimachinery::apply::{ApplySchema, Member, Shape};
/// use torana_apimachinery::apply::{ApplyRequest, FieldSet, Writer, apply};
/// use torana_apimachinery::json;
///
/// # #[derive(Clone, Copy)]
/// # struct Untyped;
/// #
/// # impl ApplySchema for Untyped {
/// #     fn shape(self) -> Shape<Self> {
/// #         Shape::Deduced
/// #     }
/// #     fn member(self, _: &str) -> Option<Member<Self>> {
/// #         Some(Member { schema: self, declared: false })
/// #     }
/// #     fn key(&self, _: usize) -> Option<&str> {
/// #         None
/// #     }
/// #     fn key_default(self, _: &str) -> Option<Value> {
/// #         None
/// #     }
/// #     fn empty(self) -> Value {
/// #         Value::object()
/// #     }
/// # }
/// #
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // `Untyped` is the schema in the documentation of `ApplySchema`.
/// let (reset, now) = (FieldSet::new(), "2026-01-01T00:00:00Z");
/// let writer = Writer { manager: "deploy", subresource: "", api_version: "example.com/v1", now };
/// let request = ApplyRequest { writer, force: false, reset: &reset };
/// let created = apply(Untyped, None, &json!({"spec": {"size": 1}}), &request)?.object;
///
/// // Another manager that wants another value is told who owns the field, unless it insists.
/// let (writer, config) = (Writer { manager: "scale", ..writer }, json!({"spec": {"size": 5}}));
/// let conflict = apply(Untyped, Some(&created), &config, &ApplyRequest { writer, ..request });
/// assert!(conflict.is_err_and(|status| status.code == 409 && status.message.ends_with(".spec.size")));
/// let forced = apply(Untyped, Some(&created), &config, &ApplyRequest { writer, force: true, ..request })?;
/// assert_eq!(forced.object.get("spec"), &json!({"size": 5}));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// 500 without a reason (as upstream) for a configuration that does not conform to the schema; 409 with one
/// cause per conflicting field.
pub fn apply<S: ApplySchema>(
    schema: S,
    live: Option<&Value>,
    config: &Value,
    request: &ApplyRequest<'_>,
) -> Result<Applied, Status> {
    apply_across(schema, live, config, request, &OneShape)
}

/// [`apply`] for a kind whose versions have different shapes.
///
/// # Errors
/// The same as those of [`apply`].
pub fn apply_across<S: ApplySchema>(
    schema: S,
    live: Option<&Value>,
    config: &Value,
    request: &ApplyRequest<'_>,
    versions: &dyn Versions<S>,
) -> Result<Applied, Status> {
    // Before anything is converted or cloned: a nonconforming configuration must not cost more than its own size.
    check(config, schema)?;
    let writer = &request.writer;
    let mut base = live.cloned().unwrap_or_else(|| schema.empty());
    // Managed fields are taken out before comparing, so they never count as a change to the object itself.
    let before = base.unset(&["metadata", "managedFields"]).unwrap_or_default();
    // Stored managed fields were decoded when they were written, so unreadable ones are not expected; they count as
    // none.
    let mut entries = managed::decode_owned(before).unwrap_or_default();
    // The object was never tracked: attribute its current fields to a synthetic manager, as upstream does, so
    // that this apply can conflict with them.
    if entries.is_empty() && live.is_some() {
        let first = Writer {
            manager: "before-first-apply",
            ..*writer
        };
        let all = managed::difference(schema, None, &base).excluding(request.reset);
        if all.untyped {
            let failed = "failed to create manager for existing fields: failed to convert new object {} to smd typed";
            return Err(untyped(failed, &base, schema));
        }
        entries = managed::take(entries, Change::from(all).acquired, &first);
    }

    // Only ownership is reset here; the strategy resets the values before storage.
    let wanted = to_field_set(config, schema).recursive_difference(request.reset);
    let mut mine = ManagedEntry::of(writer, Operation::Apply, wanted);
    // Removed from `entries` for now, so that a manager cannot conflict with its own earlier apply.
    let previous = entries
        .iter()
        .position(|e| e.same_manager(&mine))
        .map(|i| entries.remove(i));
    let mut object = merge(Some(&base), Some(config), schema).unwrap_or_default();
    if let Some(last) = previous.as_ref().filter(|p| !p.fields.is_empty()) {
        let at = Frame {
            schema,
            api_version: writer.api_version,
            versions,
        };
        object = prune(object, &at, last, &mine, &entries);
    }

    let change = typed::compare(&base, &object, schema);
    // The configuration was checked, so it is the live object.
    if change.untyped {
        return Err(untyped("failed to create typed live object {}", &base, schema));
    }
    // Reordering counts as a change, and so does a change to a field that is reset later.
    let mut changed = base != object;
    let change = change.excluding(request.reset);
    let changes = Changes::new(
        change,
        writer.api_version,
        versions,
        (Some(&base), &object),
        &mut entries,
    );
    if !request.force {
        refuse_conflicts(&entries, &changes, writer.manager, (&base, schema))?;
    }
    // Also without a conflict: forced applies and removals take fields from every other manager.
    entries.iter_mut().for_each(|e| changes.of(e).remove_from(e));
    // Stripped last: upstream's `stripmeta.go` wraps the merge.
    strip(&mut mine.fields);
    mine.time = if changed {
        Some(Str::new(writer.now))
    } else {
        previous.and_then(|p| p.time)
    };
    entries.push(mine);
    if !changed {
        object = base;
    }
    // After conflict detection: the annotation must not be claimed by this apply, nor conflict with client-side
    // apply.
    if writer.manager == "kubectl" && rewrite_last_applied(&mut object, config) {
        changed = true;
    }
    managed::store(&mut object, entries);
    Ok(Applied { object, changed })
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields recorded in kubectl's last-applied annotation that still have the recorded values.
fn client_side_applied<S: ApplySchema>(live: &Value, schema: S) -> FieldSet {
    let Some(text) = live.annotation(LAST_APPLIED) else {
        return FieldSet::new();
    };
    // The annotation is written by clients and may hold anything; malformed content grants no takeover.
    let Ok(last) = json::decode(text.as_bytes()) else {
        return FieldSet::new();
    };
    // Values changed since the last client-side apply belong to whoever changed them, so only unchanged fields may be
    // taken over.
    let c = typed::compare(&last, live, schema);
    to_field_set(&last, schema)
        .difference(&c.modified)
        .difference(&c.added)
        .difference(&c.removed)
}

/// Updates kubectl's last-applied annotation if the object has one, so that users can return to client-side
/// apply. Returns true if the object changed.
fn rewrite_last_applied(object: &mut Value, config: &Value) -> bool {
    let Some(old) = object.annotation(LAST_APPLIED).filter(|a| !a.is_empty()) else {
        return false;
    };
    let mut body = config.clone();
    // As kubectl does: an annotation that contained itself would double with every apply.
    body.unset(&["metadata", "annotations", LAST_APPLIED]);
    let text = format!("{}\n", json::to_string(&body));
    if text == old {
        return false;
    }
    let path = ["metadata", "annotations", LAST_APPLIED];
    object.set(&path, text);
    let size: usize = object.at(&path[..2]).as_object().map_or(0, |m| {
        m.iter().map(|(k, v)| k.len() + v.as_str().unwrap_or("").len()).sum()
    });
    // The annotation must not make the object invalid.
    if size > ANNOTATIONS_MAX {
        object.unset(&path);
    }
    true
}

/// Returns the live value with the configuration merged into it.
pub(super) fn merge<S: ApplySchema>(live: Option<&Value>, config: Option<&Value>, schema: S) -> Option<Value> {
    let (Some(a), Some(b)) = (live, config) else {
        return live.or(config).cloned();
    };
    checkpoint();
    // Null in the configuration keeps the live value's shape: a deduced type must not turn an object into a scalar.
    let shape = shape_of(schema, if b.is_null() { a } else { b });
    match (shape, a, b) {
        (Shape::Object, Value::Object(x), Value::Object(y)) => {
            // Both maps are sorted: a merge pass clones each value once, into its final place.
            let mut out: Vec<(Str, Value)> = Vec::with_capacity(x.len() + y.len());
            let mut wanted = y.iter().peekable();
            let mut add = |k: &str, live: Option<&Value>, v: Option<&Value>| {
                let merged = match (v, schema.member(k)) {
                    (Some(_), Some(Member { schema, .. })) => merge(live, v, schema),
                    _ => live.cloned(),
                };
                out.extend(merged.map(|v| (Str::new(k), v)));
            };
            for (k, live) in x.iter() {
                while let Some((k, v)) = wanted.next_if(|(w, _)| *w < k) {
                    add(k, None, Some(v));
                }
                add(k, Some(live), wanted.next_if(|(w, _)| *w == k).map(|(_, v)| v));
            }
            for (k, v) in wanted {
                add(k, None, Some(v));
            }
            Some(Value::Object(Map::from_pairs(out)))
        }
        // An empty live value and null are both empty: upstream takes the configuration's, which counts as a change
        // (`emptyPromoteToLeaf` in `typed/merge.go`).
        (Shape::Object, Value::Object(x), Value::Null) if x.is_empty() => Some(Value::Null),
        (Shape::Set(_) | Shape::Keyed(_), Value::Array(x), Value::Null) if x.is_empty() => Some(Value::Null),
        // An explicit null does not delete in an apply; fields are removed by no longer applying them (`prune`).
        (Shape::Object, Value::Object(_), Value::Null) => Some(a.clone()),
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(x), Value::Array(y)) => {
            Some(merge_lists(x, y, (schema, shape, of)))
        }
        (Shape::Set(_) | Shape::Keyed(_), Value::Array(_), Value::Null) => Some(a.clone()),
        // Atomic values, scalars, and values whose type does not match the schema: the configuration replaces them
        // whole.
        _ => Some(b.clone()),
    }
}

/// Merges two lists. Items of the configuration keep their order; items only in the live list stay before the
/// shared item they preceded.
fn merge_lists<S: ApplySchema>(live: &[Value], config: &[Value], (list, shape, of): (S, Shape<S>, S)) -> Value {
    let elements = |items: &[Value]| -> Vec<Option<PathElement>> {
        // Items without identity exist only in a live list stored under an older schema; `check` rejects them in a
        // configuration.
        items.iter().map(|v| item_element(list, shape, v).ok()).collect()
    };
    let (old, new) = (elements(live), elements(config));
    // Position of each item in the live list. An item that occurs twice there is merged with no item of the
    // configuration.
    let mut places: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
    for (i, e) in old.iter().enumerate() {
        if let Some(e) = e {
            places.entry(e).and_modify(|p| *p = None).or_insert(Some(i));
        }
    }
    // A set and a map, not scans: with two lists of thousands of items, the order-preserving merge would be
    // quadratic.
    let wanted: BTreeSet<&PathElement> = new.iter().flatten().collect();
    let shared = |e: &Option<PathElement>| e.as_ref().is_some_and(|e| wanted.contains(e));
    // Only shared items anchor the order; items new to the list are emitted where the configuration has them.
    let mut upcoming = new.iter().flatten().filter(|e| places.contains_key(e)).peekable();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let mut at = 0;
    for (i, e) in new.iter().enumerate() {
        let next = upcoming.peek().copied();
        // Emits live-only items up to the next anchor. Shared items are skipped here because the configuration
        // decides their position.
        while at < old.len() && (next.is_none() || old[at].as_ref() != next) {
            if !shared(&old[at]) {
                out.push(live[at].clone());
            }
            at += 1;
        }
        let place = e.as_ref().and_then(|e| places.get(e));
        let under = place.copied().flatten().map(|j| &live[j]);
        out.extend(merge(under, Some(&config[i]), of));
        // Consumes the anchor. The live position advances only if it rests on the item, which is not so when the
        // configuration reordered it.
        if place.is_some() {
            upcoming.next();
            at += usize::from(at < old.len() && old[at] == *e);
        }
    }
    out.extend((at..old.len()).filter(|&j| !shared(&old[j])).map(|j| live[j].clone()));
    Value::Array(out)
}

#[cfg(test)]
mod tests;
