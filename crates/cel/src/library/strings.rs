//! Functions on strings: the language's (`contains`, `startsWith` …) and those of cel-go's extension (`charAt`,
//! `replace`, `split` …). Indexes count code points. `indexOf` is in `lists`, `format` in `printf`, `matches` in `regex`.

use super::{Body::Strict, Declaration};
use crate::value::{Out, Val, error, no_overload};
use torana_apimachinery::field::go_escape;

pub(super) const FUNCTIONS: &[Declaration] = &[
    (
        "contains",
        Strict(|a| test(a, |s, t| s.contains(t))),
        &["string.(string) bool"],
    ),
    (
        "startsWith",
        Strict(|a| test(a, |s, t| s.starts_with(t))),
        &["string.(string) bool"],
    ),
    (
        "endsWith",
        Strict(|a| test(a, |s, t| s.ends_with(t))),
        &["string.(string) bool"],
    ),
    (
        "lowerAscii",
        Strict(|a| change(a, |s| s.to_ascii_lowercase())),
        &["string.() string"],
    ),
    (
        "upperAscii",
        Strict(|a| change(a, |s| s.to_ascii_uppercase())),
        &["string.() string"],
    ),
    (
        "trim",
        Strict(|a| change(a, |s| s.trim().to_owned())),
        &["string.() string"],
    ),
    ("charAt", Strict(char_at), &["string.(int) string"]),
    (
        "substring",
        Strict(substring),
        &["string.(int) string", "string.(int, int) string"],
    ),
    (
        "replace",
        Strict(replace),
        &["string.(string, string) string", "string.(string, string, int) string"],
    ),
    (
        "split",
        Strict(split),
        &["string.(string) list(string)", "string.(string, int) list(string)"],
    ),
    (
        "join",
        Strict(join),
        &["list(string).() string", "list(string).(string) string"],
    ),
    ("strings.quote", Strict(|a| change(a, quote)), &["(string) string"]),
];

/// Results longer than the largest request body are not built.
const MAX_RESULT: usize = 16 << 20;

fn test<'a>(args: &[Val<'a>], holds: fn(&str, &str) -> bool) -> Out<'a> {
    match args {
        [Val::String(s), Val::String(t)] => Ok(Val::Bool(holds(s, t))),
        _ => no_overload(),
    }
}

fn change<'a>(args: &[Val<'a>], to: fn(&str) -> String) -> Out<'a> {
    match args {
        [Val::String(s)] => Ok(to(s).into()),
        _ => no_overload(),
    }
}

/// The byte offset of a code point; the length is the offset of the end.
pub(super) fn offset(s: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    // The end is a valid index: substrings may be empty there.
    let offsets = s.char_indices().map(|(i, _)| i).chain([s.len()]);
    offsets.into_iter().nth(index)
}

fn char_at<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s), Val::Int(i)] = args else {
        return no_overload();
    };
    match offset(s, *i) {
        // At the end the result is empty.
        Some(at) => Ok(s[at..].chars().next().map_or_else(String::new, String::from).into()),
        None => error(format!("index out of range: {i}")),
    }
}

fn substring<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (s, start, end) = match args {
        [Val::String(s), Val::Int(start)] => (s, *start, None),
        [Val::String(s), Val::Int(start), Val::Int(end)] => (s, *start, Some(*end)),
        _ => return no_overload(),
    };
    // Before the bounds are checked, which decides the error.
    if let Some(end) = end.filter(|end| start > *end) {
        return error(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let Some(from) = offset(s, start) else {
        return error(format!("index out of range: {start}"));
    };
    let Some(end) = end else { return Ok(s[from..].into()) };
    let Some(to) = offset(s, end) else {
        return error(format!("index out of range: {end}"));
    };
    Ok(s[from..to].into())
}

fn replace<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (s, from, to, count) = match args {
        [Val::String(s), Val::String(from), Val::String(to)] => (s, from, to, -1),
        [Val::String(s), Val::String(from), Val::String(to), Val::Int(n)] => (s, from, to, *n),
        _ => return no_overload(),
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // Counted before building: an empty pattern matches between all characters and so multiplies a long text.
    let matches = s.matches(&**from).take(count).count();
    if s.len().saturating_add(matches.saturating_mul(to.len())) > MAX_RESULT {
        return error("replacement result is too long");
    }
    Ok(s.replacen(&**from, to, count).into())
}

fn split<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (s, separator, count) = match args {
        [Val::String(s), Val::String(separator)] => (s, separator, -1),
        [Val::String(s), Val::String(separator), Val::Int(n)] => (s, separator, *n),
        _ => return no_overload(),
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // Rust's `splitn` would give empty strings at both ends.
    if separator.is_empty() {
        let mut out = Vec::new();
        let mut rest = &**s;
        while let Some(c) = rest.chars().next().filter(|_| count > 0) {
            if out.len() + 1 == count {
                break;
            }
            out.push(Val::from(&rest[..c.len_utf8()]));
            rest = &rest[c.len_utf8()..];
        }
        if !rest.is_empty() && count > 0 {
            out.push(rest.into());
        }
        return Ok(out.into());
    }
    Ok(s.splitn(count, &**separator).map(Val::from).collect::<Vec<_>>().into())
}

fn join<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::String(separator)] => (list, &**separator),
        _ => return no_overload(),
    };
    let mut out = String::new();
    for (i, item) in list.iter().enumerate() {
        let Val::String(s) = item? else { return no_overload() };
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(&s);
        // Checked per element, since separators may be long, too.
        if out.len() > MAX_RESULT {
            return error("joined string is too long");
        }
    }
    Ok(out.into())
}

fn quote(s: &str) -> String {
    let mut out = String::from('"');
    // Unlike Go's `Quote`, unprintable characters without a short escape stay as they are.
    for c in s.chars() {
        match go_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}
