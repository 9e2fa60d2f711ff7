//! Semantic versions, strictly as version 2 of their specification has them.

use super::{Body::Strict, Declaration};
use crate::value::{Fail, Out, Val, error, no_overload};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("semver", Strict(semver), &["(string) Semver"]),
    ("isSemver", Strict(is_semver), &["(string) bool"]),
    ("major", Strict(|a| part(a, 0)), &["Semver.() int"]),
    ("minor", Strict(|a| part(a, 1)), &["Semver.() int"]),
    ("patch", Strict(|a| part(a, 2)), &["Semver.() int"]),
];

/// A parsed version, without its build metadata, which comparisons ignore.
#[derive(Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
}

/// An identifier of a pre-release. Numbers sort before words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(Box<str>),
}

fn number(s: &str) -> Option<u64> {
    let canonical = s == "0" || !s.starts_with('0');
    (canonical && !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
}

fn is_identifier(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl Semver {
    fn parse(s: &str) -> Option<Self> {
        let (rest, build) = s.split_once('+').map_or((s, None), |(r, b)| (r, Some(b)));
        if build.is_some_and(|b| !b.split('.').all(is_identifier)) {
            return None;
        }
        let (core, pre) = rest.split_once('-').map_or((rest, None), |(c, p)| (c, Some(p)));
        let mut parts = core.split('.').map(number);
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        let identifier = |s| match is_identifier(s) {
            true if s.bytes().all(|b| b.is_ascii_digit()) => number(s).map(Identifier::Number),
            true => Some(Identifier::Word(s.into())),
            false => None,
        };
        let pre = pre.map_or(Some(Vec::new()), |p| p.split('.').map(identifier).collect())?;
        parts.next().is_none().then_some(Self { numbers, pre })
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        // A release is newer than its pre-releases.
        let release = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers
            .cmp(&other.numbers)
            .then(release)
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

fn semver<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    Semver::parse(s).map_or_else(
        || error(format!("invalid semantic version {}", &**s)),
        |v| Ok(Val::Semver(Arc::new(v))),
    )
}

fn is_semver<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    Ok(Val::Bool(Semver::parse(s).is_some()))
}

fn part<'a>(args: &[Val<'a>], i: usize) -> Out<'a> {
    match args {
        [Val::Semver(v)] => i64::try_from(v.numbers[i]).map_or_else(|_| error("integer overflow"), |n| Ok(Val::Int(n))),
        _ => no_overload(),
    }
}

/// The order of two quantities or versions.
pub(super) fn order(args: &[Val<'_>]) -> Result<Ordering, Fail> {
    match args {
        [Val::Quantity(a), Val::Quantity(b)] => Ok(a.cmp(b)),
        [Val::Semver(a), Val::Semver(b)] => Ok(a.compare(b)),
        _ => no_overload(),
    }
}

pub(super) fn ordered<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> Out<'a> {
    order(args).map(|o| Val::Bool(holds(o)))
}
