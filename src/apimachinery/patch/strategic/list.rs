//! Merging lists: of objects by key, of scalars as sets; and the order that results.

use super::{
    DIRECTIVE, ELEMENT_ORDER, FieldPatch, PatchSchema, go_print, merge_map, no_merge_key, rejected, unknown_patch_type,
};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;

/// Merges `patch` into `live`; with `deletes`, the scalars of `patch` are removed instead.
pub(super) fn merge<S: PatchSchema>(
    live: &mut Vec<Value>,
    patch: Vec<Value>,
    field: &FieldPatch<S>,
    deletes: bool,
) -> Result<(), Status> {
    if live.is_empty() && patch.is_empty() {
        return Ok(());
    }
    if !of_maps(live, &patch)? {
        if deletes {
            live.retain(|v| !patch.contains(v));
            return Ok(());
        }
        let server = live.clone();
        let mut merged: Vec<Value> = Vec::with_capacity(live.len() + patch.len());
        for v in std::mem::take(live).into_iter().chain(patch.iter().cloned()) {
            if !merged.contains(&v) {
                merged.push(v);
            }
        }
        *live = arrange(merged, &patch, &server, None)?;
        return Ok(());
    }
    let Some(key) = field.merge_key else {
        let t = field.schema.type_name();
        return Err(Status::raw_error(format!(
            "cannot merge lists without merge key for {t}"
        )));
    };
    let mut patch = special_items(live, patch, key)?;
    let order: Vec<Value> = patch.iter().map(|v| identity(v, key)).collect();
    let server: Vec<Value> = live.iter().map(|v| identity(v, key)).collect();
    for item in patch.drain(..) {
        let value = item
            .as_object()
            .and_then(|m| m.get(key))
            .ok_or_else(|| no_merge_key(&item, key))?;
        match live
            .iter()
            .position(|l| l.as_object().and_then(|m| m.get(key)) == Some(value))
        {
            Some(i) => {
                if let (Value::Object(l), Value::Object(p)) = (&mut live[i], item) {
                    merge_map(l, p, field.schema)?;
                }
            }
            None => live.push(item),
        }
    }
    *live = arrange(std::mem::take(live), &order, &server, Some(key))?;
    Ok(())
}

/// True for lists of objects, false for lists of scalars.
fn of_maps(live: &[Value], patch: &[Value]) -> Result<bool, Status> {
    let mut kind = None;
    for v in live.iter().chain(patch) {
        if matches!(v, Value::Array(_)) {
            return Err(rejected());
        }
        let k = std::mem::discriminant(v);
        if kind.is_some_and(|seen| seen != k) {
            let shown = go_print(&Value::from(patch.to_vec()));
            return Err(Status::raw_error(format!(
                "list element types are not identical: {shown}"
            )));
        }
        kind = Some(k);
    }
    Ok(live
        .first()
        .or(patch.first())
        .is_some_and(|v| matches!(v, Value::Object(_))))
}

/// Acts on the items with a `$patch` and returns the others.
fn special_items(live: &mut Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Vec<Value>, Status> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Some(m) = item.as_object() else { continue };
        let Some(directive) = m.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = m.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                live.retain(|l| l.as_object().and_then(|l| l.get(key)) != Some(value));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(Status::raw_error("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_patch_type(directive, m)),
        }
    }
    if replace {
        *live = std::mem::take(&mut plain);
    }
    Ok(plain)
}

/// An item reduced to what tells it apart.
fn identity(item: &Value, key: &str) -> Value {
    match item.as_object().and_then(|m| m.get(key)) {
        Some(v) => Value::Object([(key, v.clone())].into_iter().collect()),
        None => item.clone(),
    }
}

fn same(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        None => a == b,
        Some(k) => match (
            a.as_object().and_then(|m| m.get(k)),
            b.as_object().and_then(|m| m.get(k)),
        ) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
    }
}

fn rank(item: &Value, order: &[Value], key: Option<&str>) -> Option<usize> {
    order.iter().position(|o| same(item, o, key))
}

/// Puts the items that `order` names into that order and weaves the others, in the order they have in `server`, between
/// them: one of these goes first only where both stand in `server`, and it stood earlier.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, Status> {
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        if let Some(k) = key
            && item.as_object().is_none_or(|m| !m.contains_key(k))
        {
            return Err(no_merge_key(&item, k));
        }
        let at = rank(&item, server, key);
        match rank(&item, order, key) {
            Some(r) => named.push((r, at, item)),
            None => others.push((at, item)),
        }
    }
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

/// The items of a patch, deletions aside, must stand in the order given for the whole list.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Status> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|v| v.get(DIRECTIVE).as_str() != Some("delete")) {
        if !rest.by_ref().any(|o| same(item, o, key)) {
            let (patch, order) = (
                go_print(&Value::from(patch.to_vec())),
                go_print(&Value::from(order.to_vec())),
            );
            return Err(Status::raw_error(format!(
                "The order in patch list:\n{patch}\n doesn't match {ELEMENT_ORDER} list:\n{order}\n"
            )));
        }
    }
    Ok(())
}
