//! Merging of lists in strategic merge patches: objects by key, scalars as sets, and the resulting order.

use super::{
    DIRECTIVE, ELEMENT_ORDER, FieldPatch, PatchSchema, go_print, merge_map, no_merge_key, rejected, unknown_patch_type,
    wrong_type,
};
use crate::codec::json;
use crate::interrupt::checkpoint;
use crate::status::Status;
use crate::value::Value;
use std::collections::HashMap;

/// Maps items to positions by merge key (or value), to keep merging linear. The first of several equal
/// items is found.
#[derive(Default)]
pub(super) struct Index(HashMap<Vec<u8>, usize>);

impl Index {
    pub(super) fn of(items: &[Value], key: Option<&str>) -> Self {
        let mut index = Self::default();
        for (i, item) in items.iter().enumerate() {
            index.add(item, key, i);
        }
        index
    }

    /// Returns the lookup token of an item; `None` for an object without the key. Integers and floats of the
    /// same text differ.
    pub(super) fn token(item: &Value, key: Option<&str>) -> Option<Vec<u8>> {
        let v = match key {
            None => item,
            Some(k) => item.as_object()?.get(k)?,
        };
        // The first byte keeps `80` and `80.0` apart, as Go's interface comparison does.
        let mut out = vec![u8::from(matches!(v, Value::Float(_)))];
        json::encode(v, &mut out);
        Some(out)
    }

    fn add(&mut self, item: &Value, key: Option<&str>, at: usize) {
        if let Some(t) = Self::token(item, key) {
            // Upstream searches from the front, so the first of equal items is the one that is merged.
            self.0.entry(t).or_insert(at);
        }
    }

    pub(super) fn find(&self, item: &Value, key: Option<&str>) -> Option<usize> {
        self.0.get(&Self::token(item, key)?).copied()
    }
}

/// Merges `patch` into `live`. With `deletes`, removes the scalars in `patch` instead.
pub(super) fn merge<S: PatchSchema>(
    live: &mut Vec<Value>,
    patch: Vec<Value>,
    field: &FieldPatch<S>,
    deletes: bool,
) -> Result<(), Status> {
    // `of_maps` cannot tell the kind of two empty lists.
    if live.is_empty() && patch.is_empty() {
        return Ok(());
    }
    if !of_maps(live, &patch)? {
        if deletes {
            let gone = Index::of(&patch, None);
            live.retain(|v| gone.find(v, None).is_none());
            return Ok(());
        }
        let server = Index::of(live, None);
        let order = Index::of(&patch, None);
        // The union of both lists; of equal items the first stays.
        // Live items come first, so that they win over equal ones of the patch.
        let mut both = std::mem::take(live);
        both.extend(patch);
        let first = Index::of(&both, None);
        let mut i = 0;
        // A set lookup per item keeps the union linear.
        both.retain(|v| {
            i += 1;
            first.find(v, None) == Some(i - 1)
        });
        *live = arrange(both, &order, &server, None)?;
        return Ok(());
    }
    let Some(name) = field.merge_key else {
        return Err(Status::raw_error("cannot merge lists without merge key for struct"));
    };
    // Directives run before indexing, because they change which items are live.
    let patch = special_items(live, patch, name)?;
    let key = Some(name);
    let (order, server) = (Index::of(&patch, key), Index::of(live, key));
    // `server` keeps the original positions for the final order; `places` also finds items appended below.
    let mut places = Index::of(live, key);
    for item in patch {
        checkpoint();
        has_key(&item, name)?;
        match places.find(&item, key) {
            Some(i) => {
                // Both are objects: `of_maps` has checked that.
                if let (Value::Object(l), Value::Object(p)) = (&mut live[i], item) {
                    merge_map(l, p, field.schema)?;
                }
            }
            None => {
                places.add(&item, key, live.len());
                live.push(item);
            }
        }
    }
    *live = arrange(std::mem::take(live), &order, &server, key)?;
    Ok(())
}

/// An error unless the item is an object with the merge key.
fn has_key(item: &Value, key: &str) -> Result<(), Status> {
    let map = item.as_object().ok_or_else(|| no_map(item))?;
    match map.contains_key(key) {
        true => Ok(()),
        false => Err(no_merge_key(item, key)),
    }
}

/// The error for a value that is no object in a list of objects.
fn no_map(v: &Value) -> Status {
    wrong_type("map[string]interface {}", v)
}

fn has_directive(item: &Value) -> bool {
    item.as_object().is_some_and(|m| m.contains_key(DIRECTIVE))
}

/// True for lists of objects, false for lists of scalars; an error for mixed, nested or only empty lists.
pub(super) fn of_maps(live: &[Value], patch: &[Value]) -> Result<bool, Status> {
    let mut kind = None;
    for v in live.iter().chain(patch) {
        // Upstream looks at the first element only.
        if kind.is_none() && matches!(v, Value::Array(_)) {
            return Err(rejected());
        }
        let k = std::mem::discriminant(v);
        if kind.is_some_and(|seen| seen != k) {
            let shown = go_print(&Value::from(vec![
                // Printed whole, as upstream does; only reached for a mistake in the patch.
                Value::from(live.to_vec()),
                Value::from(patch.to_vec()),
            ]));
            return Err(Status::raw_error(format!(
                "list element types are not identical: {shown}"
            )));
        }
        kind = Some(k);
    }
    match live.first().or(patch.first()) {
        Some(v) => Ok(matches!(v, Value::Object(_))),
        None => Err(Status::raw_error("no elements in any of the given slices")),
    }
}

/// Executes the items with a `$patch` directive and returns the remaining ones.
fn special_items(live: &mut Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Vec<Value>, Status> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = Vec::new();
    let mut replace = false;
    for item in patch {
        // `of_maps` has rejected lists with anything but objects.
        let Some(m) = item.as_object() else { continue };
        let Some(directive) = m.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = m.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                gone.push(Value::Object([(key, value.clone())].into_iter().collect()));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(Status::raw_error("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_patch_type(directive, m)),
        }
    }
    if !gone.is_empty() {
        let gone = Index::of(&gone, Some(key));
        live.retain(|l| gone.find(l, Some(key)).is_none());
    }
    if replace {
        // The merge of the remaining items then finds nothing to do.
        *live = std::mem::take(&mut plain);
    }
    Ok(plain)
}

/// Sorts the items in `order` accordingly and interleaves the others in their `server` order: such an item
/// precedes an ordered one only if both are in `server` and it came earlier there.
fn arrange(merged: Vec<Value>, order: &Index, server: &Index, key: Option<&str>) -> Result<Vec<Value>, Status> {
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        checkpoint();
        if let Some(k) = key
            // Live items count as well: upstream fails for them, too, since it cannot sort them.
            && item.as_object().is_none_or(|m| !m.contains_key(k))
        {
            return Err(no_merge_key(&item, k));
        }
        let at = server.find(&item, key);
        match order.find(&item, key) {
            Some(r) => named.push((r, at, item)),
            None => others.push((at, item)),
        }
    }
    // Both sorts are stable, so duplicates keep their order.
    named.sort_by_key(|(r, ..)| *r);
    others.sort_by_key(|(at, _)| *at);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, at, item) in named {
        while let Some((_, other)) = others.next_if(|(o, _)| matches!((o, at), (Some(o), Some(at)) if *o < at)) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others.map(|(_, v)| v));
    Ok(out)
}

/// The order of the live items when upstream arranges a list by `$setElementOrder`. It merges in the memory of the live
/// list, so that new items take the places of deleted ones in it, behind the remaining ones.
pub(super) fn order_in_place(live: &[Value], patch: &[Value], key: &str) -> Index {
    let key = Some(key);
    let (mut gone, mut replaces) = (Index::default(), false);
    for (i, item) in patch.iter().enumerate() {
        match item.get(DIRECTIVE).as_str() {
            Some("delete") => gone.add(item, key, i),
            Some("replace") => replaces = true,
            _ => {}
        }
    }
    let mut order = Index::default();
    let mut count = 0;
    for item in live.iter().filter(|item| gone.find(item, key).is_none()) {
        order.add(item, key, count);
        count += 1;
    }
    // A list that replaces the live one has its own memory.
    for item in patch.iter().filter(|item| !replaces && !has_directive(item)) {
        if count == live.len() {
            break;
        }
        if order.find(item, key).is_none() {
            order.add(item, key, count);
            count += 1;
        }
    }
    order
}

/// Checks what upstream looks at when it tells the items that the order names from others.
pub(super) fn check_partition(merged: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Status> {
    let Some(name) = key else { return Ok(()) };
    // It looks for each item in the order, and fails at what it cannot compare.
    let odd = order.iter().position(|item| item.as_object().is_none());
    let places = Index::of(order, key);
    for item in merged {
        checkpoint();
        has_key(item, name)?;
        if let Some(odd) = odd
            && places.find(item, key).is_none_or(|place| place > odd)
        {
            return Err(Status::raw_error(format!("value for key {odd} is not a map.")));
        }
    }
    Ok(())
}

/// [`arrange`] with the order given as a slice.
pub(super) fn arrange_by(
    merged: Vec<Value>,
    order: &[Value],
    server: &Index,
    key: Option<&str>,
) -> Result<Vec<Value>, Status> {
    if let Some(key) = key {
        order.iter().try_for_each(|item| has_key(item, key))?;
    }
    arrange(merged, &Index::of(order, key), server, key)
}

/// Checks that the patch's items, except deletions, occur in the order given by `$setElementOrder`.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Status> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some()
        && let Some(odd) = patch.iter().find(|item| item.as_object().is_none())
    {
        return Err(no_map(odd));
    }
    let is_deletion = |item: &Value| key.is_some() && item.get(DIRECTIVE).as_str() == Some("delete");
    // One pass over `order`: each item must be found behind the previous one.
    let mut rest = order.iter().peekable();
    for item in patch.iter().filter(|item| !is_deletion(item)) {
        // Other directives are skipped, but behind the end of the order upstream misses them like any item.
        if has_directive(item) && rest.peek().is_some() {
            continue;
        }
        loop {
            let place = rest.next().ok_or_else(|| out_of_order(patch, order))?;
            if is_same(item, place, key)? {
                break;
            }
        }
    }
    Ok(())
}

/// Whether an item of the patch is the one that the order names here.
fn is_same(item: &Value, place: &Value, key: Option<&str>) -> Result<bool, Status> {
    if let Some(key) = key {
        if place.as_object().is_none() {
            return Err(no_map(place));
        }
        has_key(item, key)?;
        has_key(place, key)?;
    }
    Ok(Index::token(item, key) == Index::token(place, key))
}

fn out_of_order(patch: &[Value], order: &[Value]) -> Status {
    let (patch, order) = (
        go_print(&Value::from(patch.to_vec())),
        go_print(&Value::from(order.to_vec())),
    );
    Status::raw_error(format!(
        "The order in patch list:\n{patch}\n doesn't match {ELEMENT_ORDER} list:\n{order}\n"
    ))
}
