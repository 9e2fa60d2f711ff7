//! Apply: a manager says which fields it wants and how; the live object becomes that, unless others own what would change.

use super::changes::{Change, Changes};
use super::check::check;
use super::fieldset::{FieldSet, PathElement};
use super::managed::{self, ManagedEntry, Operation, Writer, strip};
use super::typed::{self, item_element, shape_of, to_field_set};
use super::{ApplySchema, AtVersion, Member, OneShape, Shape, Versions};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{MAX_ERRORS, MAX_TEXT, cut};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Cause, Status};
use crate::apimachinery::validation::meta::ANNOTATIONS_MAX;
use crate::apimachinery::value::{Map, Str, Value};
use crate::interrupt::checkpoint;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// How to apply.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// Who applies.
    pub writer: Writer<'a>,
    /// Take fields from others instead of failing.
    pub force: bool,
    /// Fields that applies through this endpoint never own.
    pub reset: &'a FieldSet,
}

/// What an apply leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The object to go on with, its managed fields up to date.
    pub object: Value,
    /// False where only managed fields differ from the live object: it need not be defaulted again.
    pub changed: bool,
}

/// Applies `config` to `live` (`None`: the object is created). Both are at the writer's version; `config` is as the client
/// sent it, `live` as the server writes it.
///
/// # Errors
/// A bare 500 for a configuration that does not fit the schema, 409 with one cause per conflict.
pub fn apply<S: ApplySchema>(
    schema: S,
    live: Option<&Value>,
    config: &Value,
    request: &ApplyRequest<'_>,
) -> Result<Applied, Status> {
    apply_across(schema, live, config, request, &OneShape)
}

/// [`apply`] for a kind whose versions differ in shape.
///
/// # Errors
/// As [`apply`].
pub fn apply_across<S: ApplySchema>(
    schema: S,
    live: Option<&Value>,
    config: &Value,
    request: &ApplyRequest<'_>,
    versions: &dyn Versions<S>,
) -> Result<Applied, Status> {
    check(config, schema)?;
    let writer = &request.writer;
    let mut base = live.cloned().unwrap_or_else(|| schema.empty());
    let before = base.unset(&["metadata", "managedFields"]).unwrap_or_default();
    let mut entries = managed::decode_owned(before).unwrap_or_default();
    if entries.is_empty() && live.is_some() {
        let first = Writer {
            manager: "before-first-apply",
            subresource: "",
            ..*writer
        };
        let all = managed::difference(schema, None, &base).excluding(request.reset);
        entries = managed::take(entries, Change::from(all).taken, &first);
    }

    let wanted = to_field_set(config, schema).recursive_difference(request.reset);
    let mut mine = ManagedEntry::of(writer, Operation::Apply, wanted);
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
    // Another order is a change, too, and so is what is reset later.
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
        // Per entry: what it owns and would lose to this write.
        let lost = |e: &ManagedEntry| e.fields.intersection(&changes.of(e).taken);
        let lost: Vec<FieldSet> = entries.iter().map(lost).collect();
        if let Err(status) = conflicts(&entries, &lost) {
            // Fields kubectl set by client-side apply, and nobody touched since, are its own.
            let allowed = if writer.manager == "kubectl" {
                client_side_applied(&base, schema)
            } else {
                FieldSet::new()
            };
            if allowed.is_empty() {
                return Err(status);
            }
            let rest: Vec<FieldSet> = lost.iter().map(|f| f.difference(&allowed)).collect();
            conflicts(&entries, &rest)?;
        }
    }
    entries.iter_mut().for_each(|e| changes.of(e).release(e));
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
    if writer.manager == "kubectl" && rewrite_last_applied(&mut object, config) {
        changed = true;
    }
    managed::store(&mut object, entries);
    Ok(Applied { object, changed })
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields kubectl's annotation says it applied, as far as they still have those values.
fn client_side_applied<S: ApplySchema>(live: &Value, schema: S) -> FieldSet {
    let Some(text) = live.annotation(LAST_APPLIED) else {
        return FieldSet::new();
    };
    let Ok(last) = json::decode(text.as_bytes()) else {
        return FieldSet::new();
    };
    let c = typed::compare(&last, live, schema);
    to_field_set(&last, schema)
        .difference(&c.modified)
        .difference(&c.added)
        .difference(&c.removed)
}

/// Keeps kubectl's annotation in step where the object has it, so that client-side apply can take over again. True where
/// that changed something.
fn rewrite_last_applied(object: &mut Value, config: &Value) -> bool {
    let Some(old) = object.annotation(LAST_APPLIED).filter(|a| !a.is_empty()) else {
        return false;
    };
    let mut body = config.clone();
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
    if size > ANNOTATIONS_MAX {
        object.unset(&path);
    }
    true
}

/// Fails where an entry would lose something.
fn conflicts(entries: &[ManagedEntry], taken: &[FieldSet]) -> Result<(), Status> {
    let mut found: Vec<Lost<'_>> = Vec::new();
    for (entry, taken) in entries.iter().zip(taken) {
        let leaves = taken.leaves();
        let total = leaves.members();
        if total > 0 {
            found.push(Lost { entry, leaves, total });
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    found.sort_by_key(|l| {
        let e = l.entry;
        (&e.manager, e.operation, &e.api_version, &e.subresource)
    });
    let total: usize = found.iter().map(|l| l.total).sum();
    let mut causes: Vec<Cause> = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    let mut room = MAX_TEXT;
    for lost in &found {
        let manager = lost.manager();
        let before = causes.len();
        lost.leaves.visit_while(&mut |path| {
            let fits = causes.is_empty() || causes.len() < MAX_ERRORS && path.len() + manager.len() <= room;
            if fits {
                room = room.saturating_sub(path.len() + manager.len());
                causes.push(Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {manager}"),
                    field: path.to_owned(),
                });
            }
            fits
        });
        let paths: Vec<&str> = causes[before..].iter().map(|c| c.field.as_str()).collect();
        if !paths.is_empty() {
            groups.push(format!("conflicts with {manager}:\n- {}", paths.join("\n- ")));
        }
    }
    let message = match causes.as_slice() {
        [one] if total == 1 => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        shown => {
            let more = match total - shown.len() {
                0 => String::new(),
                n => format!("\nand {n} more"),
            };
            format!("Apply failed with {total} conflicts: {}{more}", groups.join("\n"))
        }
    };
    let mut s = Status::new(409, "Conflict", message);
    s.details_mut().causes = causes;
    Err(s)
}

/// What an entry would lose.
struct Lost<'e> {
    entry: &'e ManagedEntry,
    leaves: FieldSet,
    total: usize,
}

impl Lost<'_> {
    /// How conflicts name the manager.
    fn manager(&self) -> String {
        let e = self.entry;
        let mut shown = format!("{:?}", e.manager.as_str());
        if !e.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", e.subresource.as_str()));
        }
        if e.operation == Operation::Update {
            shown.push_str(&format!(" using {}", e.api_version));
        }
        cut(shown, 1024)
    }
}

/// The live value with the configuration laid over it.
fn merge<S: ApplySchema>(live: Option<&Value>, config: Option<&Value>, schema: S) -> Option<Value> {
    let (Some(a), Some(b)) = (live, config) else {
        return live.or(config).cloned();
    };
    checkpoint();
    let shape = shape_of(schema, if b.is_null() { a } else { b });
    match (shape, a, b) {
        (Shape::Object, Value::Object(x), Value::Object(y)) => {
            // Both are sorted; each value is copied once, where it ends up.
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
        (Shape::Object, Value::Object(_), Value::Null) => Some(a.clone()),
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(x), Value::Array(y)) => {
            Some(merge_lists(x, y, (schema, shape, of)))
        }
        (Shape::Set(_) | Shape::Keyed(_), Value::Array(_), Value::Null) => Some(a.clone()),
        _ => Some(b.clone()),
    }
}

/// Weaves two lists: items of the configuration keep their order; items only the live list has stay before the shared item
/// they stood before.
fn merge_lists<S: ApplySchema>(live: &[Value], config: &[Value], (list, shape, of): (S, Shape<S>, S)) -> Value {
    let elements = |items: &[Value]| -> Vec<Option<PathElement>> {
        items.iter().map(|v| item_element(list, shape, v).ok()).collect()
    };
    let (old, new) = (elements(live), elements(config));
    // Where each item stands in the live list; one that stands there twice belongs to no item of the configuration.
    let mut places: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
    for (i, e) in old.iter().enumerate() {
        if let Some(e) = e {
            places.entry(e).and_modify(|p| *p = None).or_insert(Some(i));
        }
    }
    let wanted: BTreeSet<&PathElement> = new.iter().flatten().collect();
    let shared = |e: &Option<PathElement>| e.as_ref().is_some_and(|e| wanted.contains(e));
    let mut upcoming = new.iter().flatten().filter(|e| places.contains_key(e)).peekable();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let mut at = 0;
    for (i, e) in new.iter().enumerate() {
        let next = upcoming.peek().copied();
        while at < old.len() && (next.is_none() || old[at].as_ref() != next) {
            if !shared(&old[at]) {
                out.push(live[at].clone());
            }
            at += 1;
        }
        let place = e.as_ref().and_then(|e| places.get(e));
        let under = place.copied().flatten().map(|j| &live[j]);
        out.extend(merge(under, Some(&config[i]), of));
        if place.is_some() {
            upcoming.next();
            at += usize::from(at < old.len() && old[at] == *e);
        }
    }
    out.extend((at..old.len()).filter(|&j| !shared(&old[j])).map(|j| live[j].clone()));
    Value::Array(out)
}

/// The version an object stands at, and how to get to others.
struct Frame<'a, S> {
    schema: S,
    api_version: &'a str,
    versions: &'a dyn Versions<S>,
}

impl<S: ApplySchema> Frame<'_, S> {
    /// The object at another version.
    fn at<'o>(&self, object: &'o Value, api_version: &str) -> (Cow<'o, Value>, S) {
        if api_version == self.api_version && object.api_version() == self.api_version {
            return (Cow::Borrowed(object), self.schema);
        }
        match self.versions.at(object, api_version) {
            AtVersion::Converted(v, s) => (Cow::Owned(v), s),
            AtVersion::Same | AtVersion::Unknown => (Cow::Borrowed(object), self.schema),
        }
    }

    /// A number for what [`at`](Self::at) makes of objects: one per shape.
    fn shape(&self, api_version: &str) -> Option<usize> {
        self.versions
            .shape(api_version)
            .or(self.versions.shape(self.api_version))
    }
}

/// Removes what the manager applied before, does not apply now, and nobody else owns.
fn prune<S: ApplySchema>(
    merged: Value,
    frame: &Frame<'_, S>,
    last: &ManagedEntry,
    mine: &ManagedEntry,
    others: &[ManagedEntry],
) -> Value {
    if last.api_version == mine.api_version && last.fields.difference(&mine.fields).is_empty() {
        return merged;
    }
    let cut = |v: &Value, set: &FieldSet, s: S| without(v, set, s).unwrap_or_else(Value::object);
    let fields = |v: &Value, s: S| with_named_fields(&to_field_set(v, s), s);
    let (at_last, s) = frame.at(&merged, &last.api_version);
    let named = with_named_fields(&last.fields, s);
    let mut pruned = cut(&at_last, &named, s);
    // What somebody owns comes back, and with it the structs it stands in; each version in its own terms, that of the last
    // apply first.
    let mut owners: Vec<&ManagedEntry> = std::iter::once(mine).chain(others).collect();
    owners.sort_by_key(|e| (e.api_version != last.api_version, &e.api_version));
    let mut shapes: Vec<(Option<usize>, &str, Vec<&FieldSet>)> = Vec::new();
    for e in owners {
        let shape = frame.shape(&e.api_version);
        match shapes.iter_mut().find(|(s, ..)| *s == shape) {
            Some((.., sets)) => sets.push(&e.fields),
            None => shapes.push((shape, &e.api_version, vec![&e.fields])),
        }
    }
    for (_, version, owned) in shapes {
        let ((whole, s), (part, _)) = (frame.at(&merged, version), frame.at(&pruned, version));
        let owned = FieldSet::union_of(owned.into_iter().cloned());
        let mut gone = fields(&whole, s);
        gone.subtract(&fields(&part, s));
        gone.subtract(&with_named_fields(&owned, s));
        pruned = cut(&whole, &gone, s);
    }
    // What only disappeared because something around it did, comes back as well.
    let mut gone = fields(&at_last, s).intersection(&named);
    gone.subtract(&fields(&frame.at(&pruned, &last.api_version).0, s));
    let left = without(&at_last, &gone, s).unwrap_or_else(Value::object);
    frame.at(&left, frame.api_version).0.into_owned()
}

/// The set with every declared field on its paths as a member of its own.
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

/// The value without the members of a set. `None` where everything in it was removed; in an object null stands for that: it
/// is still a field, which somebody may own as a whole.
fn without<S: ApplySchema>(v: &Value, set: &FieldSet, schema: S) -> Option<Value> {
    if set.is_empty() {
        return Some(v.clone());
    }
    checkpoint();
    let shape = shape_of(schema, v);
    match (shape, v) {
        (Shape::Object, Value::Object(m)) => {
            let mut out: Vec<(Str, Value)> = Vec::with_capacity(m.len());
            for (k, v) in m.iter() {
                let e = set.get(&PathElement::Field(Str::new(k)));
                let left = match (e, schema.member(k)) {
                    (Some(e), _) if e.member => continue,
                    (Some(e), Some(member)) => without(v, &e.children, member.schema).unwrap_or_default(),
                    _ => v.clone(),
                };
                out.push((Str::new(k), left));
            }
            (!out.is_empty()).then(|| Value::Object(Map::from_pairs(out)))
        }
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(a)) => {
            let mut out = Vec::with_capacity(a.len());
            for item in a {
                let e = item_element(schema, shape, item).ok().and_then(|e| set.get(&e));
                out.extend(match e {
                    Some(e) if e.member => None,
                    Some(e) => without(item, &e.children, of),
                    None => Some(item.clone()),
                });
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        _ => Some(v.clone()),
    }
}

#[cfg(test)]
mod tests;
