//! Lists as sets. Quadratic in general, and charged as such.

use super::{Body::Strict, Declaration};
use crate::value::{Fail, Out, Val, no_overload};

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("sets.contains", Strict(contains), &["(list(A), list(A)) bool"]),
    ("sets.equivalent", Strict(equivalent), &["(list(A), list(A)) bool"]),
    ("sets.intersects", Strict(intersects), &["(list(A), list(A)) bool"]),
];

fn has<'a>(list: &[Val<'a>], wanted: &Val<'a>) -> Result<bool, Fail> {
    for item in list {
        if item.equals(wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lists<'a>(args: &[Val<'a>]) -> Result<(Vec<Val<'a>>, Vec<Val<'a>>), Fail> {
    match args {
        [Val::List(a), Val::List(b)] => Ok((a.to_vec()?, b.to_vec()?)),
        _ => no_overload(),
    }
}

fn covers<'a>(list: &[Val<'a>], parts: &[Val<'a>]) -> Result<bool, Fail> {
    for part in parts {
        if !has(list, part)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (a, b) = lists(args)?;
    covers(&a, &b).map(Val::Bool)
}

fn equivalent<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (a, b) = lists(args)?;
    Ok(Val::Bool(covers(&a, &b)? && covers(&b, &a)?))
}

fn intersects<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (a, b) = lists(args)?;
    for item in &b {
        if has(&a, item)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
