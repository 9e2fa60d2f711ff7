//! Character classes and escapes of Go's regular expressions: each function reads one from the start of the pattern
//! and writes it for the `regex` crate, whose syntax differs in details.

use super::error::{Result, SyntaxError};
use crate::interrupt::checkpoint;
use std::fmt::Write;

/// Estimated size of a class such as `.`, which is an automaton over UTF-8.
pub(super) const DOT_COST: u32 = 10;
/// The same for a class of a Unicode category or script.
const UNICODE_COST: u32 = 400;

/// A class that matches nothing.
pub(super) const NOTHING: &str = "[^\\x{0}-\\x{10FFFF}]";

/// The ASCII ranges of `\d`, `\s` and `\w`, and whether the class is negated.
pub(super) fn perl(s: &str) -> Option<(&'static str, bool, &str)> {
    let c = s.strip_prefix('\\')?.chars().next()?;
    let ranges = match c.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\f\\r\\x20",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    // The backslash and the letter are one byte each.
    Some((ranges, c.is_ascii_uppercase(), &s[2..]))
}

/// Translates `\pL`, `\p{Greek}`, `\P{^Lu}` at the start of `s`.
pub(super) fn unicode<'a>(s: &'a str, out: &mut String) -> Result<Option<(&'a str, u32)>> {
    let Some(after) = s.strip_prefix("\\p").or_else(|| s.strip_prefix("\\P")) else {
        return Ok(None);
    };
    let unknown = |part: &str| SyntaxError::new("invalid character class range", part);
    let (name, rest) = match after.chars().next() {
        None => return Err(unknown(s)),
        Some('{') => after[1..].split_once('}').ok_or_else(|| unknown(s))?,
        Some(c) => after.split_at(c.len_utf8()),
    };
    let written = &s[..s.len() - rest.len()];
    let (inverted, name) = match name.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, name),
    };
    if !is_unicode_name(name) {
        return Err(unknown(written));
    }
    // `\P{^Lu}` is negated twice, which cancels out.
    let letter = if s.starts_with("\\P") != inverted { 'P' } else { 'p' };
    let _ = write!(out, "\\{letter}{{{name}}}");
    Ok(Some((rest, UNICODE_COST)))
}

/// True for names of general categories and scripts, in any case and with any of `_`, `-` and spaces.
fn is_unicode_name(name: &str) -> bool {
    const CATEGORIES: [&str; 20] = [
        "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "N", "Nd", "P", "Pd", "S", "Sc", "Sk", "Z", "Zs", "C", "Han",
        "Latin",
    ];
    const MAX_LENGTH: usize = 64;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    // Spares the common names the compilation below.
    if CATEGORIES.contains(&name) {
        return true;
    }
    // Each name takes tens of microseconds, and a pattern may have many.
    checkpoint();
    // The crate knows the names; those of anything but categories and scripts are in features that are not
    // enabled.
    !name.is_empty() && name.len() <= MAX_LENGTH && name.chars().all(word) && {
        regex::Regex::new(&format!("\\p{{{name}}}")).is_ok()
    }
}

/// The character of an escape at the start of `s`; surrogates are possible.
pub(super) fn escaped(s: &str) -> Result<(u32, &str)> {
    let mut chars = s[1..].chars();
    // `s` starts with a backslash, one byte.
    let Some(c) = chars.next() else {
        return Err(SyntaxError::new("trailing backslash at end of expression", ""));
    };
    let invalid = |rest: &str| SyntaxError::new("invalid escape sequence", &s[..s.len() - rest.len()]);
    let t = chars.as_str();
    let octal = |t: &str| t.starts_with(|c: char| ('0'..='7').contains(&c));
    // Digits first: a single digit would be a backreference, which RE2 does not have.
    Ok(match c {
        '1'..='7' if !octal(t) => return Err(invalid(t)),
        '0'..='7' => {
            let more = t.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let digits = &s[1..2 + more];
            (u32::from_str_radix(digits, 8).unwrap_or_default(), &t[more..])
        }
        'x' => return hexadecimal(t).map_err(invalid),
        'a' => (7, t),
        'f' => (12, t),
        'n' => (10, t),
        'r' => (13, t),
        't' => (9, t),
        'v' => (11, t),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => (c.into(), t),
        _ => return Err(invalid(t)),
    })
}

/// The part after `\x`: two digits, or any number in braces. The error is the text after the invalid part.
fn hexadecimal(t: &str) -> std::result::Result<(u32, &str), &str> {
    let mut chars = t.chars();
    let Some(first) = chars.next() else { return Err(t) };
    if first != '{' {
        let second = chars.next();
        let digit = |c: char| c.to_digit(16);
        return match (digit(first), second.and_then(digit)) {
            (Some(x), Some(y)) => Ok((x * 16 + y, chars.as_str())),
            _ => Err(chars.as_str()),
        };
    }
    let (mut code, mut digits) = (0u32, 0);
    loop {
        match chars.next() {
            Some('}') if digits > 0 => return Ok((code, chars.as_str())),
            Some(c) => match c.to_digit(16) {
                // Checked before the multiplication can exceed 32 bits: `code` stays below 0x110000.
                Some(d) if code * 16 + d <= 0x10_FFFF => (code, digits) = (code * 16 + d, digits + 1),
                _ => return Err(chars.as_str()),
            },
            None => return Err(""),
        }
    }
}

/// Translates a class in brackets at the start of `s`; returns what follows it and its estimated size.
pub(super) fn bracketed<'a>(s: &'a str, out: &mut String) -> Result<(&'a str, u32)> {
    let mut t = &s[1..];
    let mut body = String::new();
    let mut cost = DOT_COST;
    let negated = t.starts_with('^');
    if negated {
        t = &t[1..];
    }
    let mut first = true;
    // A bracket directly after `[` or `[^` is a member of the class.
    while first || !t.starts_with(']') {
        first = false;
        if t.starts_with("[:")
            && let Some(end) = t[2..].find(":]")
        {
            let (name, rest) = t.split_at(end + 4);
            if !is_posix_class(name) {
                return Err(SyntaxError::new("invalid character class range", name));
            }
            body.push_str(name);
            t = rest;
            continue;
        }
        if let Some((rest, size)) = unicode(t, &mut body)? {
            (t, cost) = (rest, cost.saturating_add(size));
            continue;
        }
        if let Some((ranges, not, rest)) = perl(t) {
            // Nested, because the ranges of a negated class cannot be listed inline.
            if not {
                let _ = write!(body, "[^{ranges}]");
            } else {
                body.push_str(ranges);
            }
            t = rest;
            continue;
        }
        let range = t;
        let (low, rest) = one(t, s)?;
        t = rest;
        let mut high = low;
        // A minus before the closing bracket is a literal.
        if t.len() >= 2 && t.starts_with('-') && !t[1..].starts_with(']') {
            (high, t) = one(&t[1..], s)?;
            if high < low {
                let part = &range[..range.len() - t.len()];
                return Err(SyntaxError::new("invalid character class range", part));
            }
        }
        push_range(&mut body, low, high);
        cost = cost.saturating_add(1);
    }
    let not = if negated { "^" } else { "" };
    // The class was empty or had only surrogates, which no text contains.
    match (body.is_empty(), negated) {
        (true, true) => out.push_str("[\\x{0}-\\x{10FFFF}]"),
        (true, false) => out.push_str(NOTHING),
        (false, _) => drop(write!(out, "[{not}{body}]")),
    }
    Ok((&t[1..], cost))
}

/// Appends a range without its surrogates.
fn push_range(out: &mut String, low: u32, high: u32) {
    let mut part = |low: u32, high: u32| {
        if low <= high {
            let _ = write!(out, "\\x{{{low:x}}}-\\x{{{high:x}}}");
        }
    };
    // Rust's `char` excludes surrogates, and the `regex` crate rejects ranges that end in one.
    part(low, high.min(0xD7FF));
    part(low.max(0xE000), high);
}

/// A character of a class, which `whole` starts.
fn one<'a>(s: &'a str, whole: &str) -> Result<(u32, &'a str)> {
    match s.chars().next() {
        None => Err(SyntaxError::new("missing closing ]", whole)),
        Some('\\') => escaped(s),
        Some(c) => Ok((c.into(), &s[c.len_utf8()..])),
    }
}

fn is_posix_class(name: &str) -> bool {
    let inner = name.trim_start_matches("[:").trim_end_matches(":]");
    matches!(
        inner.strip_prefix('^').unwrap_or(inner),
        "alnum"
            | "alpha"
            | "ascii"
            | "blank"
            | "cntrl"
            | "digit"
            | "graph"
            | "lower"
            | "print"
            | "punct"
            | "space"
            | "upper"
            | "word"
            | "xdigit"
    )
}
