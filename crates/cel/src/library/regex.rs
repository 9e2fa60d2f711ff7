//! Regular expressions, in linear time.

use super::{Body::Strict, Declaration};
use crate::value::{Out, Val, error, no_overload};
use regex::Regex;

pub(super) const FUNCTIONS: &[Declaration] = &[
    (
        "matches",
        Strict(matches),
        &["(string, string) bool", "string.(string) bool"],
    ),
    ("find", Strict(find), &["string.(string) string"]),
    (
        "findAll",
        Strict(find_all),
        &["string.(string) list(string)", "string.(string, int) list(string)"],
    ),
];

/// The most memory that a compiled expression takes.
const SIZE_LIMIT: usize = 1 << 20;

pub(crate) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(pattern)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(256 << 10)
        .build()
}

fn matches<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s), Val::String(pattern)] = args else {
        return no_overload();
    };
    match compile(pattern) {
        Ok(regex) => Ok(Val::Bool(regex.is_match(s))),
        Err(_) => error(format!("error parsing regexp: `{}`", &**pattern)),
    }
}

fn find<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s), Val::String(pattern)] = args else {
        return no_overload();
    };
    match compile(pattern) {
        Ok(regex) => Ok(regex.find(s).map_or("", |m| m.as_str()).into()),
        Err(_) => error(format!("Illegal regex: `{}`", &**pattern)),
    }
}

fn find_all<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (s, pattern, count) = match args {
        [Val::String(s), Val::String(pattern)] => (s, pattern, -1),
        [Val::String(s), Val::String(pattern), Val::Int(n)] => (s, pattern, *n),
        _ => return no_overload(),
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match compile(pattern) {
        Ok(regex) => Ok(regex
            .find_iter(s)
            .take(count)
            .map(|m| Val::from(m.as_str()))
            .collect::<Vec<_>>()
            .into()),
        Err(_) => error(format!("Illegal regex: `{}`", &**pattern)),
    }
}
