//! Kubernetes' library of semantic versions: `semver('1.2.3')`, their parts and order. Parsing is in
//! `value::semver`.

use super::{Body::Strict, Declaration};
use crate::value::semver::{ParseError, Semver};
use crate::value::{Fail, Out, Val, error, no_overload};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("semver", Strict(semver), &["(string) Semver", "(string, bool) Semver"]),
    ("isSemver", Strict(is_semver), &["(string) bool", "(string, bool) bool"]),
    ("major", Strict(|a| part(a, 0)), &["Semver.() int"]),
    ("minor", Strict(|a| part(a, 1)), &["Semver.() int"]),
    ("patch", Strict(|a| part(a, 2)), &["Semver.() int"]),
];

fn parsed(args: &[Val<'_>]) -> Result<Result<Semver, ParseError>, Fail> {
    match args {
        [Val::String(s)] | [Val::String(s), Val::Bool(false)] => Ok(Semver::parse(s)),
        [Val::String(s), Val::Bool(true)] => Ok(Semver::parse_normalized(s)),
        _ => no_overload(),
    }
}

fn semver<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    parsed(args)?.map_or_else(|why| error(why.to_string()), |v| Ok(Val::Semver(Arc::new(v))))
}

fn is_semver<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    Ok(Val::Bool(parsed(args)?.is_ok()))
}

fn part<'a>(args: &[Val<'a>], i: usize) -> Out<'a> {
    match args {
        // Versions have unsigned numbers, the language's integers are signed.
        [Val::Semver(v)] => i64::try_from(v.numbers[i]).map_or_else(|_| error("integer overflow"), |n| Ok(Val::Int(n))),
        _ => no_overload(),
    }
}

/// The order of two quantities or versions.
pub(super) fn order(args: &[Val<'_>]) -> Result<Ordering, Fail> {
    match args {
        [Val::Quantity(a, _), Val::Quantity(b, _)] => Ok(a.cmp(b)),
        [Val::Semver(a), Val::Semver(b)] => Ok(a.compare(b)),
        _ => no_overload(),
    }
}

pub(super) fn ordered<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> Out<'a> {
    order(args).map(|o| Val::Bool(holds(o)))
}
