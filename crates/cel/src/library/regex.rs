//! Regular expressions in RE2's syntax, in linear time.

use super::{Body::Strict, Declaration};
use crate::value::{Out, Val, error, no_overload};
use regex::Regex;
use torana_apimachinery::regexp;

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

/// The error says what is wrong with the pattern.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = regexp::translate(pattern).map_err(|e| e.to_string())?;
    translated
        .compile(SIZE_LIMIT)
        .map_err(|_| format!("error parsing regexp: expression too large: `{pattern}`"))
}

/// Calls a function with a compiled pattern.
pub(crate) fn run<'a>(function: &str, regex: &Regex, args: &[Val<'a>]) -> Out<'a> {
    let [Val::String(s), _, rest @ ..] = args else {
        return no_overload();
    };
    match (function, rest) {
        ("matches", _) => Ok(Val::Bool(regex.is_match(s))),
        ("find", _) => Ok(regex.find(s).map_or("", |m| m.as_str()).into()),
        (_, []) => Ok(found(regex, s, -1)),
        (_, [Val::Int(n)]) => Ok(found(regex, s, *n)),
        _ => no_overload(),
    }
}

fn found<'a>(regex: &Regex, s: &str, count: i64) -> Val<'a> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let all = regex.find_iter(s).take(count);
    all.map(|m| Val::from(m.as_str())).collect::<Vec<_>>().into()
}

fn matches<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    dynamic(args, "matches", "")
}

fn find<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    dynamic(args, "find", "Illegal regex: ")
}

fn find_all<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    dynamic(args, "findAll", "Illegal regex: ")
}

/// Calls a function with a pattern that is known only now.
fn dynamic<'a>(args: &[Val<'a>], function: &str, prefix: &str) -> Out<'a> {
    let [_, Val::String(pattern), ..] = args else {
        return no_overload();
    };
    match compile(pattern) {
        Ok(regex) => run(function, &regex, args),
        Err(why) => error(format!("{prefix}{why}")),
    }
}
