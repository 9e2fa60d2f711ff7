//! cel-go's library of optional values: `optional.of`, `hasValue`, `unwrapOpt` and others.

use super::{
    Body::{Alternative, Strict},
    Declaration,
};
use crate::value::json_patch;
use crate::value::{Out, Val, error, no_overload};
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("optional.of", Strict(optional_of), &["(A) optional(A)"]),
    (
        "optional.ofNonZeroValue",
        Strict(optional_of_non_zero),
        &["(A) optional(A)"],
    ),
    (
        "optional.none",
        Strict(|_| Ok(Val::Optional(None))),
        &["() optional(A)"],
    ),
    ("value", Strict(value), &["optional(A).() A"]),
    ("hasValue", Strict(has_value), &["optional(A).() bool"]),
    (
        "or",
        Alternative { value: false },
        &["optional(A).(optional(A)) optional(A)"],
    ),
    ("orValue", Alternative { value: true }, &["optional(A).(A) A"]),
    ("optional.unwrap", Strict(unwrap), &["(list(optional(A))) list(A)"]),
    ("unwrapOpt", Strict(unwrap), &["list(optional(A)).() list(A)"]),
    ("first", Strict(first), &["list(A).() optional(A)"]),
    ("last", Strict(last), &["list(A).() optional(A)"]),
];

fn optional_of<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    Ok(Val::Optional(Some(Arc::new(std::mem::take(&mut args[0])))))
}

fn optional_of_non_zero<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let zero = match &args[0] {
        Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Duration(0) | Val::Optional(None) => true,
        Val::Double(f) => *f == 0.0,
        Val::String(s) => s.is_empty(),
        Val::Bytes(b) => b.is_empty(),
        Val::List(l) => l.is_empty(),
        Val::Map(m) => m.is_empty(),
        Val::Object(m, _) => m.is_empty(),
        // Operations of JSON patches are never zero, since their unset members read as values.
        Val::Record(of) => of.fields.is_empty() && !Arc::ptr_eq(&of.of, &json_patch::TYPE),
        _ => false,
    };
    if zero {
        Ok(Val::Optional(None))
    } else {
        optional_of(args)
    }
}

fn value<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Optional(Some(v)) => Ok(v.as_ref().clone()),
        Val::Optional(None) => error("optional.none() dereference"),
        _ => no_overload(),
    }
}

fn has_value<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Optional(v) => Ok(Val::Bool(v.is_some())),
        _ => no_overload(),
    }
}

fn unwrap<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let Val::List(list) = &args[0] else {
        return no_overload();
    };
    let mut out = Vec::new();
    for item in list.iter() {
        match item? {
            Val::Optional(Some(v)) => out.push(v.as_ref().clone()),
            Val::Optional(None) => {}
            _ => return no_overload(),
        }
    }
    Ok(out.into())
}

fn end<'a>(args: &[Val<'a>], pick: fn(usize) -> Option<usize>) -> Out<'a> {
    let Val::List(list) = &args[0] else {
        return no_overload();
    };
    let found = pick(list.len()).and_then(|i| list.get(i)).transpose()?;
    Ok(Val::Optional(found.map(Arc::new)))
}

fn first<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    // `get` finds nothing in an empty list, so the index need not be checked.
    end(args, |_| Some(0))
}

fn last<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    end(args, |n| n.checked_sub(1))
}
