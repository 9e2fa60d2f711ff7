//! Removal of the fields that a manager gives up by applying without them.
//!
//! Start at [`prune`]. A field stays if another manager owns it; ownership is resolved in the version each manager recorded
//! its fields in (`prune` and `addBackOwnedItems` in structured-merge-diff's `merge/update.go`).

use crate::apply::changes::MAX_SHAPES;
use crate::apply::fieldset::{FieldSet, PathElement};
use crate::apply::managed::ManagedEntry;
use crate::apply::typed::{item_element, shape_of, to_field_set};
use crate::apply::{ApplySchema, AtVersion, Shape, Versions};
use crate::interrupt::checkpoint;
use crate::object::ObjectView;
use crate::value::{Map, Str, Value};
use std::borrow::Cow;

/// The API version an object is at, with the conversions to other versions.
pub(super) struct Frame<'a, S> {
    pub(super) schema: S,
    pub(super) api_version: &'a str,
    pub(super) versions: &'a dyn Versions<S>,
}

impl<S: ApplySchema> Frame<'_, S> {
    /// Converts the object to another version; unknown versions leave it as it is.
    fn at<'o>(&self, object: &'o Value, api_version: &str) -> (Cow<'o, Value>, S) {
        // The object may already be at another version, after an earlier step of `prune`.
        if api_version == self.api_version && object.api_version() == self.api_version {
            return (Cow::Borrowed(object), self.schema);
        }
        match self.versions.at(object, api_version) {
            AtVersion::Converted(v, s) => (Cow::Owned(v), s),
            AtVersion::Same | AtVersion::Unknown => (Cow::Borrowed(object), self.schema),
        }
    }

    /// The index of the shape that [`at`](Self::at) produces; equal indexes need no second conversion.
    fn shape(&self, api_version: &str) -> Option<usize> {
        self.versions
            .shape(api_version)
            .or(self.versions.shape(self.api_version))
    }
}

/// Removes the fields this manager applied before, does not apply now, and no other manager owns.
pub(super) fn prune<S: ApplySchema>(
    merged: Value,
    frame: &Frame<'_, S>,
    last: &ManagedEntry,
    mine: &ManagedEntry,
    others: &[ManagedEntry],
) -> Value {
    // The usual case: nothing was given up, so no conversion or walk is needed.
    if last.api_version == mine.api_version && last.fields.difference(&mine.fields).is_empty() {
        return merged;
    }
    // Upstream's `EnsureNamedFieldsAreMembers`: declared structs around owned fields count as owned, and so are
    // removed and restored with them.
    let fields = |v: &Value, s: S| with_named_fields(&to_field_set(v, s), s);
    let (at_last, s) = frame.at(&merged, &last.api_version);
    let named = with_named_fields(&last.fields, s);
    let mut pruned = without(&at_last, &named, s);
    // Restore what any manager owns, along with the enclosing structs. Ownership is resolved in the version
    // each entry is recorded in, starting with that of the last apply.
    let mut owners: Vec<&ManagedEntry> = std::iter::once(mine).chain(others).collect();
    // The order is observable: each version restores on top of the previous one, and upstream starts with the last
    // apply's (`addBackOwnedItems`).
    owners.sort_by_key(|e| (e.api_version != last.api_version, &e.api_version));
    // Grouped by shape, since converting costs a walk of the whole object and managers rarely use more than two
    // shapes.
    let mut shapes: Vec<(Option<usize>, &str, Vec<&FieldSet>)> = Vec::new();
    for e in owners {
        let shape = frame.shape(&e.api_version);
        let known = shapes.iter().position(|(s, ..)| *s == shape);
        // Those of further shapes are resolved in the first, which is that of the last apply.
        match known.or((shapes.len() == MAX_SHAPES).then_some(0)) {
            Some(known) => shapes[known].2.push(&e.fields),
            None => shapes.push((shape, &e.api_version, vec![&e.fields])),
        }
    }
    for (_, version, owned) in shapes {
        let ((whole, s), (part, _)) = (frame.at(&merged, version), frame.at(&pruned, version));
        let owned = FieldSet::union_of(owned.into_iter().cloned());
        let mut gone = fields(&whole, s);
        gone.subtract(&fields(&part, s));
        gone.subtract(&with_named_fields(&owned, s));
        pruned = without(&whole, &gone, s);
    }
    // Pruning an item also drops what other managers never recorded below it; upstream adds it back in
    // `addBackDanglingItems`.
    // Also restore items that disappeared only because their parent did.
    let mut gone = fields(&at_last, s).intersection(&named);
    gone.subtract(&fields(&frame.at(&pruned, &last.api_version).0, s));
    let left = without(&at_last, &gone, s);
    frame.at(&left, frame.api_version).0.into_owned()
}

/// Adds every declared field along the set's paths as a member.
fn with_named_fields<S: ApplySchema>(set: &FieldSet, schema: S) -> FieldSet {
    let mut out = FieldSet::new();
    for e in set.entries() {
        let (below, named) = match (&e.element, schema.shape()) {
            (PathElement::Field(name), _) => match schema.member(name) {
                Some(m) => (with_named_fields(&e.children, m.schema), m.declared),
                None => (e.children.clone(), false),
            },
            (_, Shape::Set(of) | Shape::Keyed(of)) => (with_named_fields(&e.children, of), false),
            _ => (e.children.clone(), false),
        };
        out.put(e.element.clone(), e.member || (named && !e.children.is_empty()), below);
    }
    out
}

/// Returns the value without the members of `set`. A value that becomes empty stays as an empty object or list: a
/// manager may own it as a whole, and null would not fit the schema of a custom resource. As upstream's
/// `removingWalker` (structured-merge-diff, `typed/remove.go`).
fn without<S: ApplySchema>(v: &Value, set: &FieldSet, schema: S) -> Value {
    if set.is_empty() {
        return v.clone();
    }
    checkpoint();
    let shape = shape_of(schema, v);
    match (shape, v) {
        (Shape::Object, Value::Object(m)) => {
            let mut out: Vec<(Str, Value)> = Vec::with_capacity(m.len());
            for (k, v) in m.iter() {
                let e = set.get(&PathElement::Field(Str::new(k)));
                let left = match (e, schema.member(k)) {
                    // The element itself is removed; members below it go with it, whatever the set says about them.
                    (Some(e), _) if e.member => continue,
                    (Some(e), Some(member)) => without(v, &e.children, member.schema),
                    _ => v.clone(),
                };
                out.push((Str::new(k), left));
            }
            Value::Object(Map::from_pairs(out))
        }
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(a)) => {
            let mut out = Vec::with_capacity(a.len());
            for item in a {
                let e = item_element(schema, shape, item).ok().and_then(|e| set.get(&e));
                out.extend(match e {
                    Some(e) if e.member => None,
                    Some(e) => Some(without(item, &e.children, of)),
                    None => Some(item.clone()),
                });
            }
            Value::Array(out)
        }
        _ => v.clone(),
    }
}
